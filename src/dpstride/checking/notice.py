"""Stage 3. The check beside other work: a warning where another description explains the network better, results untouched."""

from __future__ import annotations

import warnings

from ..denoiser import Denoiser
from ..runs.execution import Execution
from ..runs.progress import progress_folder
from ..runs.workers import current
from ..statistics.data import Samples
from .outcome import Check
from .run import check

LEAST = 10_000  # evaluations of all times and samples, beside which the hundred or so of a check are few


def checked(denoiser: Denoiser, data: Samples, how: Execution) -> Check | None:
    """Return what a check finds; None in helping processes, and where the network itself is at fault, as the work will say."""
    if not current().main:
        return None
    try:
        return check(denoiser, data, how.seed, how.batch_size, data_range=data.data_range, progress=how.progress)
    except Exception:
        return None


def warn_about_description(denoiser: Denoiser, data: Samples, how: Execution) -> None:
    """Warn if another description of the model explains it better, before work that takes much longer than the check.

    Smaller work and resumed work are not checked.
    """
    if denoiser.process.T * len(data) < LEAST or _begun(how):
        return
    found = checked(denoiser, data, how)
    if found is not None and not found.ok:
        warnings.warn(
            f"{found.sentence} `dpstride.check(denoiser, data)` says more; check=False skips this check.",
            stacklevel=3,
        )


def _begun(how: Execution) -> bool:
    return how.path is not None and (how.path.exists() or progress_folder(how.path).exists())
