"""Own samplers are tried before they draw: the same noise must give the same samples, whatever else is in the batch.

Candidates are compared on common noises, and samples are kept from run to run. A sampler that draws random numbers of its
own, or keeps something between calls, would make differences of paths out of nothing; an edited one would mix its samples
with those of the old one. Two samples along even steps show both: passed twice, and once alone, for every number of steps.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..runs.behaviour import IN_BATCH, MARGIN, SAME_PLACE, Behaviour, sketch
from ..statistics.data import slice_conditioning
from ..statistics.probes import ON_DEVICES

if TYPE_CHECKING:
    from .sampling import OwnWalk

Array = npt.NDArray[np.float64]
BATCHED = 1e-3  # of a sample's size: rounding in a batch, over many steps


def try_sampler(walk: OwnWalk, network: Behaviour, conditioning: Any = None) -> Behaviour:
    """Draw the first two samples of ``walk`` twice, and one of them alone; ValueError unless they are the same.

    Args:
        walk: a user's sampler along a schedule.
        network: behaviour of the network, which says precision and device.
        conditioning: one entry for each of the two samples.
    """
    both, again, (alone, *_) = (_draw(walk, count, conditioning) for count in (2, 2, 1))
    slack = max(SAME_PLACE[network.precision], 0.0 if network.device.startswith("cpu") else ON_DEVICES)
    if (far := max(map(_apart, both, again))) > slack:
        raise ValueError(
            f"The sampler {walk.name!r} gave other samples when the same noise came again (by {far:.2g} of their size, along "
            f"{walk.schedule.budget} even steps): it draws random numbers, or keeps something between calls. Whatever is "
            "random in it must be made from its argument noise alone, or paths could not be compared."
        )
    if (rounding := _apart(both[0], alone)) > min(IN_BATCH, max(BATCHED, MARGIN * SAME_PLACE[network.precision])):
        raise ValueError(
            f"The sampler {walk.name!r} gives a sample another result in a batch of two than alone (by {rounding:.2g} of its "
            "size), so that samples would depend on the batches. A norm, a mean or a step size taken over the whole batch "
            "does that: take it for each sample."
        )
    return replace(
        network,
        t=(walk.schedule.budget,) * 2,
        samples=(0, 1),
        sizes=tuple(float(np.linalg.norm(row)) for row in both),
        sketches=tuple(map(sketch, both)),
        rounding=rounding,
    )


def _draw(walk: OwnWalk, count: int, conditioning: Any) -> Array:
    given = slice_conditioning(conditioning, slice(0, count))
    return walk.advance(walk.start(0, count), 0, 0, given).flatten(1).double().cpu().numpy()


def _apart(one: Array, other: Array) -> float:
    """Distance of two samples, as a part of their size."""
    return float(np.linalg.norm(one - other)) / max(float(np.linalg.norm(one)), float(np.linalg.norm(other)), 1e-300)
