"""Stage 3. The check before other work: it warns if another description explains the network better, and changes no results."""

from __future__ import annotations

import warnings

from ..denoiser import Denoiser
from ..runs.execution import Execution
from ..runs.progress import progress_folder
from ..runs.workers import current
from ..statistics.data import Samples
from .outcome import Check
from .run import check

LEAST = 10_000  # evaluations of the work, compared with which the few hundred of a check are cheap


def checked(denoiser: Denoiser, data: Samples, how: Execution) -> Check | None:
    """Return the result of a check; None outside the main process, or if the check fails: the work will raise the error."""
    if not current().main:
        return None
    try:
        return check(denoiser, data, how.seed, how.batch_size, data_range=data.data_range, progress=how.progress)
    except Exception:
        return None


def warn_about_description(denoiser: Denoiser, data: Samples, how: Execution) -> None:
    """Warn if another description explains the model better, before work that takes much longer than the check.

    Smaller work and resumed work are not checked.
    """
    if denoiser.process.T * len(data) < LEAST or _begun(how):
        return
    found = checked(denoiser, data, how)
    if found is not None and not found.ok:
        warnings.warn(
            f"{found.sentence} `dpstride.check(denoiser, data)` gives details; check=False skips this check.",
            stacklevel=3,
        )


def _begun(how: Execution) -> bool:
    return how.path is not None and (how.path.exists() or progress_folder(how.path).exists())
