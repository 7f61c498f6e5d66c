"""Stage 7. The purpose of schedules, stated beside their numbers: likelihood and samples are different goals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from .. import samplers
from ..objectives.band import band_costs
from ..options import COMPARED_STRIDES, SAMPLES
from ..schedule import ScheduleSet
from ..statistics.artefact import Statistics
from ..strides import find

SHOWN = 8  # number of steps in the sentence, if there is such a budget
LIKELIHOOD_CAVEAT = (
    "These schedules are the best for likelihood (bits/dim), which need not give the best samples. For samples in few steps, "
    "run `dpstride find` with `--for samples`."
)
SAMPLES_CAVEAT = (
    "These schedules are chosen for samples, so other strides may have fewer bits/dim. How close samples are to real data has "
    "to be measured, as `dpstride tune` does with your sampler."
)
BOTH_CAVEAT = (
    "These schedules balance bits/dim against the error of a deterministic sampler, so they are the best for neither alone. "
    "For samples in few steps, run `dpstride find` with `--for samples`."
)


def is_for_samples(schedules: ScheduleSet) -> bool:
    """Return whether schedules were chosen for the quality of samples."""
    return schedules.options.get("objective") == SAMPLES


def caveat(options: Mapping[str, Any]) -> str:
    """Return the caveat that readers of bits/dim need about the purpose of schedules with these options."""
    if "lambda" in options:
        return BOTH_CAVEAT
    return SAMPLES_CAVEAT if options.get("objective") == SAMPLES else LIKELIHOOD_CAVEAT


def samples_sentence(schedules: ScheduleSet, heldout: Statistics) -> str:
    """Return the summary of schedules for samples: their gain over hand-made ones with as many steps, on held-out data."""
    options = schedules.options
    low, high = options["band"]
    costs = band_costs(
        heldout, options["exponent"], (low, high), options["divergence"], cap=options.get("cap", math.inf)
    )
    budget = min(schedules.budgets, key=lambda K: abs(K - SHOWN))
    T = schedules.process.T
    least = costs.cost(range(T, -1, -1))  # which no path of this network avoids

    def excess(path: Sequence[int]) -> float:
        return costs.cost(path) - least

    ours = excess(schedules.entries[budget][0])
    others = {name: excess(find(name).make(schedules.process, budget).steps) for name in COMPARED_STRIDES}
    shares = " and ".join(
        f"{ours / other:.0%} of that of {name} steps" for name, other in others.items() if other > 0.0
    )
    return (
        f"Schedules for samples with {samplers.find(schedules.sampler).words}, one for every number of steps up to "
        f"{schedules.budgets[-1]:,}. At {budget} steps their divergence from held-out data beyond that of all {T:,} steps "
        f"(noise levels {low:g} to {high:g}) is {shares or 'none'}."
    )
