"""Users' samplers are tested before they race: the same noise must give the same samples, whatever else is in the batch.

Candidates are compared on common noise, and samples are cached between runs. A sampler that draws its own random numbers, or
keeps state between calls, would show differences between paths that do not exist; an edited one would mix its samples with
cached ones of the old code. Two samples along even steps reveal both: drawn twice together, and one of them once alone, for
every number of steps.
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
BATCHED = 1e-3  # of a sample's norm: effect of batching on rounding, over many steps


def try_sampler(walk: OwnWalk, network: Behaviour, conditioning: Any = None) -> Behaviour:
    """Draw the first two samples of ``walk`` twice, and one of them alone; raise ValueError unless they agree.

    Args:
        walk: a user's sampler along a schedule.
        network: behaviour of the network, with its precision and device.
        conditioning: one entry for each of the two samples.
    """
    both, again, (alone, *_) = (_draw(walk, count, conditioning) for count in (2, 2, 1))
    slack = max(SAME_PLACE[network.precision], 0.0 if network.device.startswith("cpu") else ON_DEVICES)
    if (far := max(map(_apart, both, again))) > slack:
        raise ValueError(
            f"The sampler {walk.name!r} gave different samples when called again with the same noise (a relative difference "
            f"of {far:.2g}, along {walk.schedule.budget} even steps): it draws random numbers or keeps state between calls, so "
            "paths cannot be compared. Derive all its randomness from its argument noise."
        )
    if (rounding := _apart(both[0], alone)) > min(IN_BATCH, max(BATCHED, MARGIN * SAME_PLACE[network.precision])):
        raise ValueError(
            f"The sampler {walk.name!r} gives a different sample in a batch of two than alone (a relative difference of "
            f"{rounding:.2g}), so samples would depend on the batch size. A norm, a mean or a step size computed over the "
            "whole batch does that: compute it per sample."
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
    """Relative distance of two samples."""
    return float(np.linalg.norm(one - other)) / max(float(np.linalg.norm(one)), float(np.linalg.norm(other)), 1e-300)
