"""Agreement of bits/dim with a distance between images; the paper found that they need not agree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

AGREE, DISAGREE = 0.7, 0.3  # rank correlations: at least AGREE is called agreement, at most DISAGREE disagreement


@dataclass(frozen=True)
class Agreement:
    """Spearman's rank correlation over all points, and the number of pairs of one budget in the same order."""

    correlation: float
    points: int
    same_order: int
    pairs: int

    def sentence(self, distance: str) -> str:
        """The finding in plain words."""
        if self.points < 3 or math.isnan(self.correlation):
            return f"There are too few points to say whether bits/dim and {distance} agree."
        rho = self.correlation
        share = self.same_order / self.pairs if self.pairs else (rho + 1.0) / 2.0
        if rho >= AGREE and share >= AGREE:
            verdict = "agree"
        elif rho <= DISAGREE or share <= 0.5:
            verdict = "do not agree"
        else:
            verdict = "agree in part"
        pairs = ""
        if self.pairs:
            pairs = (
                "Of two strides at the same budget, the one with fewer bits/dim has the smaller distance in "
                f"{self.same_order} of {self.pairs} pairs. "
            )
        return (
            f"Over {self.points} points, Spearman's rank correlation is {rho:+.2f} between bits/dim and {distance} (+1: same "
            f"order, 0: no relation, −1: opposite order). {pairs}For this model the two {verdict}."
        )


def agree(points: Sequence[tuple[int, float, float]]) -> Agreement:
    """Measure the agreement of points (budget, bits/dim, distance)."""
    bpd, distance = (np.array([point[i] for point in points], dtype=np.float64) for i in (1, 2))
    correlation = math.nan
    if len(points) > 2 and np.ptp(bpd) > 0.0 and np.ptp(distance) > 0.0:
        from scipy.stats import rankdata

        correlation = float(np.corrcoef(rankdata(bpd), rankdata(distance))[0, 1])
    pairs = [(a, b) for a, b in itertools.combinations(points, 2) if a[0] == b[0] and a[1] != b[1] and a[2] != b[2]]
    same = sum((a[1] < b[1]) == (a[2] < b[2]) for a, b in pairs)
    return Agreement(correlation, len(points), same, len(pairs))
