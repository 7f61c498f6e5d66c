"""Expected time of network evaluations, from a few timed ones of the same work."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from ..denoiser import Denoiser
    from ..evaluate.features.extractor import FeatureExtractor
    from ..evaluate.sampling import Chain
    from ..evaluate.stream import Conditioning
    from ..statistics.data import Samples


def seconds_to_estimate(denoiser: Denoiser, data: Samples, batch_size: int) -> float:
    """Return the seconds per sample and t that `estimate` takes with all processes of a launch."""
    from ..runs.execution import Execution
    from ..runs.workers import current
    from ..statistics.passes import Passes
    from ..statistics.units import Unit

    T, few = denoiser.process.T, data.take(range(min(batch_size, len(data))))
    passes = Passes(denoiser, few, Execution(batch_size=batch_size, skip_nonfinite=True))
    passes.probe()  # also warms up, and detects an unusable network
    times, samples = [], len(passes.samples_of(Unit((T,), 0)))
    for t in (T, max(1, T // 2)):
        start = time.monotonic()
        passes.run(Unit((t,), 0))
        times.append(time.monotonic() - start)
    return min(times) / samples / current().size


def seconds_to_sample(denoiser: Denoiser, batch_size: int) -> float:
    """Return the seconds per sample and step that ancestral sampling takes with all processes of a launch."""
    from ..evaluate.sampling import Chain
    from ..runs.workers import current
    from ..strides import even_stride

    chain = Chain.along(denoiser, even_stride(denoiser.process, min(3, denoiser.process.T)), variance=denoiser.variance)
    x, start = chain.start(0, batch_size), time.monotonic()
    for step in range(chain.budget):
        x = chain.advance(x, step, 0)
    return (time.monotonic() - start) / (chain.budget * batch_size) / current().size


@dataclass(frozen=True)
class FittingSteps:
    """The largest number of steps with which all batches are drawn within a time, and the measurement behind it."""

    budget: int
    seconds: float
    seconds_per_pass: float
    batch: int
    batches: int

    def __str__(self) -> str:
        batches = "" if self.batches == 1 else f" and there are {self.batches:,} batches"
        return (
            f"A pass of {self.batch:,} samples takes {self.seconds_per_pass:.3g} seconds{batches}: {self.budget:,} "
            f"step{'s' * (self.budget > 1)} fit into {self.seconds:g} seconds. Give -k {self.budget} to repeat this."
        )


def fitting_steps(
    chain: Chain, budgets: Sequence[int], seconds: float, count: int, *, batch_size: int, conditioning: Conditioning
) -> FittingSteps:
    """Return the largest of ``budgets`` with which ``count`` samples take at most ``seconds``, from timed network passes."""
    batch = min(count, batch_size)
    each = seconds_of_pass(chain, batch, conditioning.of_unit((0, batch)))
    batches = math.ceil(count / batch)
    fitting = [K for K in budgets if K * batches * each <= seconds]
    if not fitting:
        raise ValueError(
            f"{min(budgets)} step{'s' * (min(budgets) > 1)} of {count:,} samples would take about "
            f"{min(budgets) * batches * each:.3g} seconds (a pass of {batch:,} takes {each:.3g}), more than {seconds:g}. Allow "
            "more time or draw fewer samples."
        )
    return FittingSteps(max(fitting), seconds, each, batch=batch, batches=batches)


def seconds_of_pass(chain: Chain, count: int, conditioning: Any = None) -> float:
    """Return the seconds of one step of ``count`` samples along ``chain``: the mean of three, after a warm-up."""
    start, times = chain.start(0, count), []
    for _ in range(4):
        before = time.monotonic()
        float(chain.advance(start, 0, 0, conditioning).sum())  # a GPU works asynchronously until its numbers are read
        times.append(time.monotonic() - before)
    return sum(times[1:]) / 3.0


def seconds_of_features(extractor: FeatureExtractor, images: Tensor) -> float:
    """Return the seconds per image that an extractor takes with all processes of a launch."""
    from ..runs.workers import current

    few = images[:16]
    extractor(few)  # warm-up
    start = time.monotonic()
    extractor(few)
    return (time.monotonic() - start) / len(few) / current().size
