"""Polishing a winner: coordinate descent on the interior times of its path, with the measure and the noise of the race.

With a solver with memory, errors of neighbouring steps may cancel, which no sum over steps can express. So each interior
time in turn tries a few places between its neighbours in ln σ, and moves to the one with the closest samples if it beats the
current path by more than two standard errors of the paired difference. Choosing among many tries is optimistic, as a race
is, so the result is measured again with all others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from .finish import difference
from .halving import SURE, Heat, Purse, Round, shared

if TYPE_CHECKING:
    from ..process import ForwardProcess
    from ..schedule import Schedule
    from .arena import Arena

SHARES = (-0.6, -0.25, -0.1, 0.1, 0.25, 0.6)  # of the way to the neighbour on either side
SWEEPS = 3  # over all interior times, fewer if one moves nothing
POLISHED = ", polished"  # after the name of the original rule


def tries(budget: int) -> int:
    """Upper bound on the number of paths of ``budget`` steps that are tried."""
    return SWEEPS * len(SHARES) * (budget - 1)


def places(process: ForwardProcess, path: Sequence[int], place: int) -> list[int]:
    """Grid indices to try for the interior time number ``place`` of a path, all between its neighbours."""
    t, here, s = path[place - 1 : place + 2]
    level = -0.5 * process.log_snr  # ln σ; infinite where there is no data left, or no noise
    far_above, far_below = float(level[t] - level[here]), float(level[here] - level[max(s, 1)])
    above = far_above if np.isfinite(far_above) else max(far_below, 1.0)
    below = far_below if s > 0 else max(far_below, above)  # down to the end of the grid
    inside = np.arange(s + 1, t)
    found = {
        int(inside[np.abs(level[inside] - (level[here] + share * (above if share > 0.0 else below))).argmin()])
        for share in SHARES
    }
    return sorted(found - {here})


def polish(arena: Arena, start: Schedule, name: str, samples: int, purse: Purse) -> tuple[Schedule, Heat]:
    """Descend from ``start`` one time after the other; return the path found, and its distance with that of the start.

    Every try is paid for from the purse; the descent ends early when it is empty.
    """
    best, first = start, arena.score(start, samples)
    score, stopped = first, False
    for _ in range(SWEEPS):
        before = best
        for place in range(1, best.budget):
            chosen = None
            for index in places(best.process, best.steps, place):
                trial = replace(best, steps=(*best.steps[:place], index, *best.steps[place + 1 :]))
                if stopped := not purse.pay(arena.evaluations(trial, samples)):
                    break
                tried = arena.score(trial, samples)
                ahead, error = difference(score, tried)
                if ahead > SURE * error and (chosen is None or ahead > chosen[0]):
                    chosen = ahead, trial, tried
            if chosen is not None:
                _, best, score = chosen
            if stopped:
                break
        if stopped or best is before:
            break
    moved = best is not start
    distances = {name: first.distance} | ({name + POLISHED: score.distance} if moved else {})
    lead = difference(first, score) if moved else None
    winner = name + POLISHED if moved else name
    return best, Heat(start.budget, winner, (Round(samples, shared(distances)),), lead, stopped=stopped)
