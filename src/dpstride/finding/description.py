"""The check of a model's description inside the main job: a note where another one explains the network better."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .job import Job


def description_notes(job: Job) -> tuple[str, ...]:
    """Return what `dpstride check` would say of the model, if it is not that all is well; results are not touched."""
    from ..checking.notice import checked

    job.doing("Checking the description of the model")
    found = checked(job.loaded.denoiser, job.choosing, job.how)
    if found is None:
        return ()
    verdict = "as described" if found.ok else "see the notes"
    job.say(f"Check    {found.evaluations:,} evaluations of other descriptions of the model: {verdict}")
    if found.ok:
        return ()
    return (f"{found.sentence} `dpstride check` says more.",)
