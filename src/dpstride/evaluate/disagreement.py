"""Stage 7. Two sets of data that do not agree on what the same paths cost: a note, in either direction.

What the choosing data predict and what the held-out data show differ by chance, by as much as their standard errors say.
Where they differ by far more, the table is still right about the held-out data, and its reader should know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..statistics.artefact import BLOCKS

Curve = Mapping[int, tuple[float, float]]
CHANCE = 3e-5  # of a note where nothing but chance is at work: of four standard errors, if these were known exactly
LEAST = 0.05  # bits/dim; less is no news, whatever the errors


def disagreement(chosen: Curve, heldout: Curve, samples: tuple[int, int], budgets: Iterable[int]) -> int | None:
    """The budget at which two curves of (bits/dim, standard error) differ most beyond chance; None if they agree.

    ``samples`` of each tell how well its standard errors are known: they come from at most `BLOCKS` groups of them.
    """
    excess = {K: _beyond_chance(chosen[K], heldout[K], samples) for K in budgets}
    worst = max(excess, key=lambda K: excess[K], default=None)
    return worst if worst is not None and excess[worst] > 0.0 else None


def _beyond_chance(one: tuple[float, float], other: tuple[float, float], samples: tuple[int, int]) -> float:
    """Return by how much two means differ more than chance explains (Welch's test), in bits/dim; −inf where that is unknown."""
    from scipy.special import stdtrit

    squares = [error**2 for _, error in (one, other)]
    difference = abs(one[0] - other[0])
    if not math.isfinite(sum(squares)) or math.isnan(difference) or min(samples) < 2:
        return -math.inf
    spread = sum(square**2 / (min(n, BLOCKS) - 1) for square, n in zip(squares, samples, strict=True))
    freedom = sum(squares) ** 2 / spread if spread > 0.0 else math.inf
    factor = float(stdtrit(min(freedom, 1e6), 1.0 - CHANCE))
    return difference - max(LEAST, factor * math.sqrt(sum(squares)))


def disagreement_note(budget: int, chosen: Curve, heldout: Curve, filled_in: bool) -> str:
    """Word what `disagreement` found, and why it may be so; ``filled_in``: the choosing data were not passed at every step."""
    (seen, _), (unseen, _) = chosen[budget], heldout[budget]
    better, why = (
        ("better", "the model has memorised them, or the two sets differ")
        if seen < unseen
        else ("worse", "the two sets differ")
    )
    remedy = (
        "Choose the path on data that the model was not trained on."
        if seen < unseen
        else "Choose the path on data like those it is for."
    )
    check = " Or what was filled in between evaluated steps is wrong: `--every-step` shows." if filled_in else ""
    return (
        f"The data that chose the path are fitted {better} than the held-out data by {abs(unseen - seen):.3f} bits/dim at "
        f"{budget} steps ({seen:.3f} against {unseen:.3f}), far more than chance explains: {why}. {remedy}{check}"
    )
