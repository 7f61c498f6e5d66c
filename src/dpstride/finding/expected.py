"""Time that network evaluations will take, by a few timed ones of the same work."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from ..denoiser import Denoiser
    from ..evaluate.features.extractor import FeatureExtractor
    from ..statistics.data import Samples


def seconds_to_estimate(denoiser: Denoiser, data: Samples, batch_size: int) -> float:
    """Seconds per sample and t that `estimate` takes, all processes of a launch together."""
    from ..runs.execution import Execution
    from ..runs.workers import current
    from ..statistics.passes import Passes
    from ..statistics.units import Unit

    T, few = denoiser.process.T, data.take(range(min(batch_size, len(data))))
    passes = Passes(denoiser, few, Execution(batch_size=batch_size, skip_nonfinite=True))
    passes.probe()  # which also warms up, and finds a network that is no use
    times, samples = [], len(passes.samples_of(Unit((T,), 0)))
    for t in (T, max(1, T // 2)):
        start = time.monotonic()
        passes.run(Unit((t,), 0))
        times.append(time.monotonic() - start)
    return min(times) / samples / current().size


def seconds_to_sample(denoiser: Denoiser, batch_size: int) -> float:
    """Seconds per sample and step that ancestral sampling takes, all processes of a launch together."""
    from ..evaluate.sampling import Chain
    from ..runs.workers import current
    from ..strides import even_stride

    chain = Chain.along(denoiser, even_stride(denoiser.process, min(3, denoiser.process.T)), variance=denoiser.variance)
    x, start = chain.start(0, batch_size), time.monotonic()
    for step in range(chain.budget):
        x = chain.advance(x, step, 0)
    return (time.monotonic() - start) / (chain.budget * batch_size) / current().size


def seconds_of_features(extractor: FeatureExtractor, images: Tensor) -> float:
    """Seconds per image that an extractor takes, all processes of a launch together."""
    from ..runs.workers import current

    few = images[:16]
    extractor(few)  # the first call also warms up
    start = time.monotonic()
    extractor(few)
    return (time.monotonic() - start) / len(few) / current().size
