"""The check of a model's description inside the main job: a note where another one explains the network better.

It is made once in a run: check.json keeps what it said, for when the run goes on after an interruption.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from ..runs.folder import CHECK
from ..runs.workers import current
from ..runs.writing import write_json

if TYPE_CHECKING:
    from .job import Job

FORMAT = "dpstride-check-1"


def description_notes(job: Job) -> tuple[str, ...]:
    """Return what `dpstride check` would say of the model, if it is not that all is well; results are not touched."""
    from ..checking.notice import checked

    if (kept := _kept(job)) is not None:
        return kept
    job.doing("Checking the description of the model")
    found = checked(job.loaded.denoiser, job.choosing, job.how)
    if found is None:
        return ()
    verdict = "see the notes" if not found.ok else "as described" if found.assumed is None else found.sentence
    job.say(f"Check    {found.evaluations:,} evaluations of other descriptions of the model: {verdict}")
    notes = () if found.ok else (f"{found.sentence} `dpstride check` says more.",)
    document = {"format": FORMAT, "run": job.record.id, "evaluations": found.evaluations, "notes": notes}
    write_json(job.output / CHECK, document)
    return notes


def _kept(job: Job) -> tuple[str, ...] | None:
    """Return what an earlier part of the same run was told; None if it was not, or what it kept is damaged."""
    path = job.output / CHECK
    if not current().main or not path.is_file():
        return None
    with suppress(UnreadableFileError):
        document = read_json_object(path)
        notes = document.get("notes")
        same = (document.get("format"), document.get("run")) == (FORMAT, job.record.id)
        if same and isinstance(notes, list) and all(isinstance(note, str) for note in notes):
            return tuple(notes)
    return None
