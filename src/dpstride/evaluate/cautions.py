"""Stage 7. Notes on scores that are correct but say little: x̂_0 far outside the data, bits/dim almost all the decoder's."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..objectives.step_costs import StepCosts
from ..statistics.artefact import Statistics

FAR = 3.0  # root mean square error of x̂_0, in standard deviations of the data
RUINOUS = 10.0  # bits/dim above the best score, of a stride in the table
REST = 0.05  # of the decoder's part: least sum of all other parts


def outside_note(heldout: Statistics, scores: Sequence[float], best: float) -> list[str]:
    """Return a note if an unclipped x̂_0 is so far from the data that some strides have absurdly high scores."""
    deviation = heldout.data.get("deviation")
    ruined = [score for score in scores if score > best + RUINOUS]
    if heldout.model.get("clip", ()) is not None or not deviation or not ruined:
        return []
    miss = np.where(heldout.evaluated, np.sqrt(heldout.mean_squared_error), 0.0)
    t = int(miss.argmax())
    if miss[t] <= FAR * deviation:
        return []
    return [
        f"x0_hat lies far outside the data: at t = {t} it is {miss[t] / deviation:,.0f} of their standard deviations off. "
        f"Strides that take long steps from there have up to {max(ruined):,.0f} bits/dim. Set clip to the range of the data."
    ]


def decoder_note(costs: StepCosts, path: Sequence[int]) -> list[str]:
    """Return a note if a path's bits/dim are almost all the decoder's, which depends on where the grid begins."""
    nats, unit = costs.step_nats(path), 1.0 / (costs.dims * math.log(2.0))
    decoder, total = float(nats[-1]) * unit, costs.bpd(float(nats.sum()), int(path[0]))
    if abs(total - decoder) > REST * abs(decoder):
        return []
    return [
        f"Almost all of the score is the decoder's ({decoder:.2f} of {total:.2f} bits/dim with {len(path) - 1:,} steps): the "
        "grid begins with more noise than the model has error, so how few steps are enough says more about the grid than "
        "about the model. Begin the grid at less noise."
    ]
