"""The check of a model's description inside the main job: a note where another one explains the network better."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..runs.workers import current

if TYPE_CHECKING:
    from .job import Job


def description_notes(job: Job) -> tuple[str, ...]:
    """Return what `dpstride check` would say of the model, if it is not that all is well; results are not touched."""
    from ..checking.run import check

    if not current().main:
        return ()
    job.doing("Checking the description of the model")
    try:
        found = check(
            job.loaded.denoiser,
            job.choosing,
            job.how.seed,
            job.how.batch_size,
            data_range=job.choosing.data_range,
            progress=job.how.progress,
        )
    except Exception:
        return ()  # what is wrong with the network itself is said by the work, which knows where
    verdict = "as described" if found.ok else "see the notes"
    job.say(f"Check    {found.evaluations:,} evaluations of other descriptions of the model: {verdict}")
    if found.ok:
        return ()
    return (f"{found.sentence} `dpstride check` says more.",)
