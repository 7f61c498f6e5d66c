"""Stage 7. A note if choosing and held-out data disagree about the costs of the same paths, in either direction.

The prediction of the choosing data and the score on held-out data differ by chance, by as much as their standard errors say.
If they differ by far more, the table is still correct for the held-out data, but its reader should know.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from ..statistics.artefact import BLOCKS

Curve = Mapping[int, tuple[float, float]]
CHANCE = 3e-5  # probability of a note by chance alone: that of four standard errors, if these were known exactly
LEAST = 0.05  # bits/dim; smaller differences are not reported, whatever the errors


def disagreement(chosen: Curve, heldout: Curve, samples: tuple[int, int], budgets: Iterable[int]) -> int | None:
    """The budget at which two curves of (bits/dim, standard error) differ most beyond chance; None if they agree.

    ``samples`` determine how well the standard errors are known, which come from at most `BLOCKS` groups of samples.
    """
    excess = {K: _beyond_chance(chosen[K], heldout[K], samples) for K in budgets}
    worst = max(excess, key=lambda K: excess[K], default=None)
    return worst if worst is not None and excess[worst] > 0.0 else None


def _beyond_chance(one: tuple[float, float], other: tuple[float, float], samples: tuple[int, int]) -> float:
    """Return by how much two means differ more than chance explains (Welch's test), in bits/dim; −inf if that is unknown."""
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
    """The finding of `disagreement` and its possible causes; ``filled_in`` if not every step ran on the choosing data."""
    (seen, _), (unseen, _) = chosen[budget], heldout[budget]
    better, why = (
        ("better", "the model has memorised them, or the two sets differ")
        if seen < unseen
        else ("worse", "the two sets differ")
    )
    remedy = (
        "Choose the path on data that the model was not trained on."
        if seen < unseen
        else "Choose the path on data like those that it is for."
    )
    check = " Or the interpolation between evaluated steps is wrong: `--every-step` shows." if filled_in else ""
    return (
        f"The data that chose the path are fitted {better} than the held-out data by {abs(unseen - seen):.3f} bits/dim at "
        f"{budget} steps ({seen:.3f} against {unseen:.3f}), far more than chance explains: {why}. {remedy}{check}"
    )
