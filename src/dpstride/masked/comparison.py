"""Stage 7. The best schedules beside hand-made ones, on held-out statistics: no network pass."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

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
        """Numbers of rounds of the table: powers of two, all, and the ``budgets`` asked for."""
        return sorted(K for K in {*COLUMNS, max(self.curves[BEST]), *budgets} if K in self.curves[BEST])

    def table(self, budgets: Iterable[int] = ()) -> str:
        """The table as text, a row for every rule; with columns for ``budgets`` too."""
        columns = self.columns(budgets)
        rows = [["bits/token, held-out", *(f"{budget:,}" for budget in columns)]]
        for rule, curve in self.curves.items():
            rows.append([WORDS[rule], *(f"{curve[budget][0]:.3f}" for budget in columns)])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join([row[0].ljust(widths[0]), *(text.rjust(w) for text, w in zip(row[1:], widths[1:], strict=True))])
            for row in rows
        )

    def sentence(self) -> str:
        """The fewest rounds within 1 % of the best bits/token, and what evenly many lose there."""
        best = self.curves[BEST]
        least = min(bits for bits, _ in best.values())
        enough = min(budget for budget, (bits, _) in best.items() if bits <= 1.01 * least)
        bits, error = best[enough]
        even = self.curves[EVEN][enough][0]
        spread = f" ± {error:.3f}" if math.isfinite(error) else ""  # one sample has none
        rounds = "1 round is" if enough == 1 else f"{enough} rounds are"
        return f"{rounds} within 1 % of the best: {bits:.3f}{spread} bits/token ({even:.3f} with evenly many in each)."

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` as JSON, atomically."""
        curves = {
            rule: [[budget, *map(finite, values)] for budget, values in sorted(curve.items())]
            for rule, curve in self.curves.items()
        }
        facts = {name: getattr(self, name) for name in ("run", "length", "model", "samples", "warnings")}
        write_json(path, {"format": FORMAT, **facts, "curves": curves})


def shown_budgets(budgets: Iterable[int]) -> list[int]:
    """Numbers of rounds that are compared: all up to 128, above that 16 per doubling, and the usual and the last ones."""
    wanted = sorted(budgets)
    above = {*COLUMNS, wanted[-1], *(int(128 * 2 ** (i / 16)) for i in range(16 * 32))}
    return [K for K in wanted if K <= 128 or K in above]


def compare_masked(
    schedules: MaskedScheduleSet, heldout: MaskedStatistics, choosing: MaskedStatistics, budgets: Iterable[int]
) -> MaskedComparison:
    """Score the best schedules and hand-made ones of the same numbers of rounds on held-out statistics of every count.

    Rounds of equal entropy are made from ``choosing``, the statistics that chose the best. Even times need samples of one
    length.
    """
    if choosing.process.length != schedules.length:
        raise ValueError(
            f"The schedules are for {schedules.length} tokens, the choosing statistics for {choosing.process.length}. Give "
            "those that chose them."
        )
    wanted = sorted(set(budgets))
    curves = {
        name: {K: score_masked(heldout, rule.make(choosing, K)) for K in wanted}
        for name, rule in RULES.items()
        if heldout.equal or not rule.by_times
    }
    curves[BEST] = {K: score_masked(heldout, schedules[K]) for K in wanted}
    return MaskedComparison(schedules.length, curves, heldout.model, heldout.samples)
