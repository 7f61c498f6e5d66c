"""Stage 7. The best schedules compared with hand-made ones, on held-out statistics: no network pass."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..evaluate.comparison import NEGLIGIBLE
from ..options import BEST
from ..paths import finite
from ..runs.writing import write_json
from .costs import score_masked
from .schedule import MaskedScheduleSet
from .statistics import MaskedStatistics
from .strides import EVEN, RULES

FORMAT = "dpstride-masked-comparison-1"
WORDS = {**{name: rule.words for name, rule in RULES.items()}, BEST: "best (DP)"}
COLUMNS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class MaskedComparison:
    """Held-out bits/token with standard errors, ``curves[rule][rounds] = (bits, standard_error)``."""

    length: int
    curves: dict[str, dict[int, tuple[float, float]]]
    model: dict[str, Any] = field(default_factory=dict)
    samples: int = 0
    warnings: tuple[str, ...] = ()
    run: str | None = None

    def columns(self, budgets: Iterable[int] = ()) -> list[int]:
        """Numbers of rounds in the table: powers of two, the largest, and ``budgets``."""
        return sorted(K for K in {*COLUMNS, max(self.curves[BEST]), *budgets} if K in self.curves[BEST])

    def table(self, budgets: Iterable[int] = ()) -> str:
        """The table as text, a row for every rule, with additional columns for ``budgets``."""
        columns = self.columns(budgets)
        rows = [["bits/token, held-out", *(f"{budget:,}" for budget in columns)]]
        for rule, curve in self.curves.items():
            rows.append([WORDS[rule], *(f"{curve[budget][0]:.3f}" for budget in columns)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(text.rjust(w) for text, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        )

    def sentence(self, tolerance: float = 0.1) -> str:
        """The answer in one sentence, as on the page: the fewest rounds within ``tolerance`` bits/token of the least."""
        best = self.curves[BEST]
        most, least = max(best), min(best, key=lambda K: best[K][0])
        enough = min(K for K, (bits, _) in best.items() if bits <= best[least][0] + tolerance)
        reference, name, where = best[most], f"all {most:,}" if most == self.length else _rounds(most), ""
        if best[least][0] < best[most][0] - NEGLIGIBLE:
            reference, name, where = best[least], "the least of any budget", f" at {_rounds(least)}"
        return (
            f"{_rounds(enough)} {'is' if enough == 1 else 'are'} within {tolerance:g} bits/token of {name} on held-out data "
            f"({_told(best[enough])} against {_told(reference)}{where}; {_told(self.curves[EVEN][enough])} with even "
            "counts)."
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` as JSON, atomically."""
        curves = {
            rule: [[budget, *map(finite, values)] for budget, values in sorted(curve.items())]
            for rule, curve in self.curves.items()
        }
        facts = {name: getattr(self, name) for name in ("run", "length", "model", "samples", "warnings")}
        write_json(path, {"format": FORMAT, **facts, "curves": curves})


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count:,} rounds"


def _told(score: tuple[float, float]) -> str:
    bits, error = score
    return f"{bits:.3f} ± {error:.3f}" if math.isfinite(error) else f"{bits:.3f}"  # a single sample has no error


def shown_budgets(budgets: Iterable[int]) -> list[int]:
    """Numbers of rounds to compare: all up to 128, then 16 per doubling, and the usual ones and the last."""
    wanted = sorted(budgets)
    above = {*COLUMNS, wanted[-1], *(int(128 * 2 ** (i / 16)) for i in range(16 * 32))}
    return [K for K in wanted if K <= 128 or K in above]


def compare_masked(
    schedules: MaskedScheduleSet, heldout: MaskedStatistics, choosing: MaskedStatistics, budgets: Iterable[int]
) -> MaskedComparison:
    """Score the best schedules and hand-made ones of the same numbers of rounds on held-out statistics of every count.

    Rounds of equal entropy are computed from ``choosing``, the statistics from which the best schedules were found. Even times
    need samples of one length.
    """
    if choosing.process.length != schedules.length:
        raise ValueError(
            f"The schedules are for {schedules.length} tokens, the choosing statistics for {choosing.process.length}. Give the "
            "statistics from which the schedules were found."
        )
    wanted = sorted(set(budgets))
    curves = {
        name: {K: score_masked(heldout, rule.make(choosing, K)) for K in wanted}
        for name, rule in RULES.items()
        if heldout.equal or not rule.by_times
    }
    curves[BEST] = {K: score_masked(heldout, schedules[K]) for K in wanted}
    return MaskedComparison(schedules.length, curves, heldout.model, heldout.samples)
