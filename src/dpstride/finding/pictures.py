"""A few samples to show with the numbers: along the best path and hand-made ones, from the same noise."""

from __future__ import annotations

from pathlib import Path

from ..evaluate.sampling import sample
from ..options import COMPARED_STRIDES
from ..report.images import save_samples
from ..schedule import ScheduleSet
from ..statistics.data import slice_conditioning
from ..strides import beside
from .job import Job

COUNT = 12  # images per path
BUDGET = 8  # default number of steps: few enough for paths to differ visibly


def pictured_budget(job: Job) -> int | None:
    """Return the number of steps of the samples to show; None if the data are not images."""
    asked, shape = job.request.pictures, job.choosing.shape
    if asked == 0 or len(shape) != 3 or shape[0] not in (1, 3) or job.choosing.data_range.levels != 256:
        return None
    most = job.denoiser.process.T if job.request.max_budget is None else job.request.max_budget
    return min(asked or BUDGET, most)


def pictures_evaluations(job: Job) -> int:
    """Count the network evaluations of the samples shown."""
    return COUNT * (len(COMPARED_STRIDES) + 1) * (pictured_budget(job) or 0)


def draw(job: Job, schedules: ScheduleSet) -> list[Path]:
    """Write samples along the best path and hand-made ones, drawn with the schedules' own sampler."""
    wanted = pictured_budget(job)
    if wanted is None:
        return []
    budget = min(schedules.budgets, key=lambda K: abs(K - wanted))
    job.doing(f"Drawing samples along paths of {budget} steps")
    data_range, files = job.choosing.data_range, []
    count = COUNT if job.scoring.conditioning is None else min(COUNT, len(job.scoring))
    for name, schedule in (
        ("", schedules[budget]),
        *((f"_{stride}", beside(schedules, stride, budget)) for stride in COMPARED_STRIDES),
    ):
        files.append(job.output / f"samples_{budget}_steps{name}.png")
        images = sample(
            job.denoiser, schedule, n=count, seed=job.how.seed, batch_size=COUNT // 2,  # for two cores
            conditioning=slice_conditioning(job.scoring.conditioning, slice(0, count)), progress=job.how.progress,
        )  # fmt: skip
        save_samples(images.numpy(), files[-1], data_range.low, data_range.high)
    job.say(
        f"{files[0]} and {len(files) - 1} others: {count} samples each, {len(files) * count * budget:,} evaluations"
    )
    return files
