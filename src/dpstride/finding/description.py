"""The check of a model's description in the main job, with a note if another description explains the network better.

It is made once in a run: check.json keeps its notes for when the run resumes after an interruption.
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
    """Return what `dpstride check` finds wrong with the model's description, if anything; results are not changed."""
    from ..checking.notice import checked

    if (kept := _kept(job)) is not None:
        return kept
    job.doing("Checking the description of the model")
    found = checked(job.loaded.denoiser, job.choosing, job.how)
    if found is None:
        return ()
    verdict = "see the notes" if not found.ok else "as described" if found.assumed is None else found.sentence
    job.say(f"Check    {found.evaluations:,} evaluations of other descriptions of the model: {verdict}")
    notes = () if found.ok else (f"{found.sentence} `dpstride check` tells more.",)
    document = {"format": FORMAT, "run": job.record.id, "evaluations": found.evaluations, "notes": notes}
    write_json(job.output / CHECK, document)
    return notes


def _kept(job: Job) -> tuple[str, ...] | None:
    """Return the notes that an earlier part of the same run saved; None if there are none, or the file is damaged."""
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
