"""Stage 3. `estimate`: the network runs once per (t, sample), and everything that later stages need is kept.

Read it with its parts: `units` divides the work, `passes` runs the network on a unit, `workers` distributes units,
`progress` stores finished ones, `rows` assembles them.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from ..denoiser import Denoiser
from ..runs.arguments import check_kinds, check_names, spelt_out
from ..runs.bars import progress_bar
from ..runs.behaviour import Behaviour
from ..runs.execution import Execution, WorkOnData
from ..runs.identity import OtherWorkError, check_identity
from ..runs.lock import ProgressError
from ..runs.progress import Progress, progress_folder
from ..runs.renamed import renamed
from ..runs.storage import Arrays, read_whole
from ..runs.workers import current
from . import artefact
from .artefact import Statistics
from .data import Samples
from .identity import identity_of, identity_of_statistics
from .interpolate import fill
from .passes import Passes, warn_about_clipping
from .place import check_evaluated
from .rows import Rows
from .spots import StoredRows, deviation, of_another_model, of_batches
from .units import Unit, cut

REMEDY = "Give another output, or remove it."


@renamed(steps="indices")
@spelt_out(WorkOnData, defaults=Execution)
def estimate(
    denoiser: Denoiser,
    data: Any,
    samples: int | None = None,
    seed: int = 0,
    *,
    data_range: object = "uint8",
    indices: Iterable[int] | None = None,
    reuse: Statistics | None = None,
    check: bool = True,
    **how: Unpack[WorkOnData],
) -> Statistics:
    """Statistics of ``denoiser`` on ``data`` at every grid index: T · samples / batch_size network passes.

    Every call first runs the probes (`dpstride.statistics.probes`, 33 evaluations), which detect a network that is random,
    keeps state between calls or mixes the samples of a batch, and distinguish the model from an edited one. Four of them are
    repeated after the work. Reused rows are recomputed at a few places (`dpstride.statistics.spots`, 16 evaluations).

    In a launch of several processes (`dpstride.runs.workers.join`) the work is divided among them; all get the same
    result, which is that of one process, bit for bit.

    Args:
        denoiser: the model; its process's grid is what is estimated.
        data: tensor or array [N, *shape], a pair (tensor, conditioning), a Dataset, or an iterable of batches.
        samples: number of samples to use, from the start of ``data``; all when None.
        seed: random seed of the noise. The result does not depend on batch_size or on the order of work.
        data_range: "uint8" (also float images on the 256-level lattice of [−1, 1]), ("levels", n, low, high) or
            "continuous".
        indices: the grid indices where the network runs, including 1 and T; all when None. Other rows are interpolated from
            these, see `dpstride.statistics.interpolate`; `Statistics.evaluated` is True where the network ran.
        reuse: statistics of the same work, evaluated at other ``indices``; their evaluated rows are reused if the model
            still behaves as it did then, whatever its name.
        check: check first whether another description explains the network better, and warn if so (`dpstride.check`, about
            a hundred evaluations); only if T · samples is 10,000 or more and no work is resumed. Results are the same.
        batch_size: samples per network pass, of one t or several, halved when memory runs out.
        progress: show a progress bar (only ever on a terminal).
        checkpoint: the file for the result. Until it is complete, finished work is kept in the folder
            ``checkpoint.progress``; called again after an interruption, estimate resumes from there. Rows of the same work
            in a complete file are reused, whatever their ``indices`` were.
        skip_nonfinite: leave out, at every t, samples for which the network returns NaN or infinity at any t. They are
            listed in ``Statistics.data["skipped"]``; the result is that of the other samples with their own noise. Ranges
            with such samples are passed through the network once more. When False, NaN or infinity is an error.
    """
    check_kinds(estimate, denoiser=denoiser)
    check_names(estimate, how, WorkOnData)
    gathered = Samples.read(data, samples, data_range, denoiser.given)
    execution = Execution(seed, **how)
    if check and reuse is None:
        from ..checking.notice import warn_about_description

        warn_about_description(denoiser, gathered, execution)
    return estimate_samples(denoiser, gathered, execution, indices, reuse=reuse)


def estimate_samples(
    denoiser: Denoiser,
    data: Samples,
    how: Execution,
    indices: Iterable[int] | None = None,
    *,
    reuse: Statistics | None = None,
    whole: bool = True,
) -> Statistics:
    """`estimate` on samples that have already been read.

    Unless ``whole``, the work is not done yet: rows other than ``indices`` are left empty, and no file is written. Computed
    rows are kept in the folder ``checkpoint.progress``, where the next call finds them.
    """
    wanted = _check_indices(indices, denoiser)
    warn_about_clipping(denoiser, data)
    with current().telling():
        work = _Work(denoiser, data, how, wanted)
        return work.lead(how.path, reuse, whole) if work.workers.main else work.help()


class _Work:
    """One call of `estimate`, in each process of a launch; only the main one reads and writes files."""

    def __init__(self, denoiser: Denoiser, data: Samples, how: Execution, wanted: npt.NDArray[np.int64]) -> None:
        self.denoiser, self.data, self.how, self.wanted = denoiser, data, how, wanted
        self.workers = current()
        self.passes = Passes(denoiser, data, how)
        self.probed = self.passes.probe()
        self.mixes = self.probed.mixes
        self.computed = False
        # After the probes, so that whatever a network creates on its first call (a cache, a lazy weight) exists.
        self.identity = identity_of(denoiser, data, how.seed, self.probed.behaviour)

    def lead(self, path: Path | None, reuse: Statistics | None, whole: bool) -> Statistics:
        """Do the main process's part: find existing rows, have the rest computed, and if ``whole`` fill and write."""
        self.workers.agree(self.identity)
        known = [] if reuse is None else [self._checked(reuse, "reuse", "Estimate without reuse=.", spots=whole)]
        folder = None if path is None else progress_folder(path)
        if path is not None and (found := read_whole(path, Statistics.load)) is not None:
            known.append(self._checked(found, path))
            if known[-1].evaluated[self.wanted].all() and folder is not None and not folder.exists():
                return self._end(known[-1])
        with contextlib.nullcontext() if folder is None else Progress(folder, self.identity) as progress:
            if progress is not None:
                self.identity = progress.identity
            statistics = self._rows(known, progress).statistics()
            if not whole:
                return self._end(statistics)
            self._check_unchanged(progress)
            if not statistics.evaluated[1:].all():
                statistics = fill(statistics, statistics.evaluated)
            if path is not None and progress is not None:
                _save(statistics, path, progress)
        return self._end(statistics)

    def help(self) -> Statistics:
        """Do the other processes' part: the units assigned to them, until the main one has all."""
        self.workers.agree(self.identity)
        while (units := self.workers.share(None)) is not None:
            for _ in self._map([_unit_of(unit) for unit in units]):
                pass
        metadata = self.workers.share(None)
        return self._ours(artefact.from_tensors(self.workers.share_arrays(None), metadata))

    def _end(self, statistics: Statistics) -> Statistics:
        if self.workers.size > 1:
            tensors, metadata = artefact.to_tensors(statistics)
            self.workers.share(None)
            self.workers.share(metadata)
            self.workers.share_arrays(tensors)
        return self._ours(statistics)

    def _ours(self, statistics: Statistics) -> Statistics:
        return replace(statistics, process=self.denoiser.process)  # files do not store its functions

    def _checked(self, found: Statistics, where: Any, remedy: str = REMEDY, spots: bool = True) -> Statistics:
        theirs = identity_of_statistics(found)
        if self.how.skip_nonfinite:
            theirs.pop("skipped", None)
        self.identity = check_identity(where, theirs, self.identity, remedy)
        if spots:
            self._check_spots(StoredRows.of_statistics(found), where, remedy)
        return found

    def _check_spots(self, kept: StoredRows, where: Any, remedy: str = REMEDY) -> None:
        """Refuse rows of ``where`` that this model does not reproduce, judged by a few of their numbers."""
        there, now = Behaviour.from_dict(self.identity["behaviour"]), self.probed.behaviour
        tolerance = max(there.tolerance(now)[0], self.probed.slack)
        at_once = self.passes.batch_size if self.mixes else 1
        if (found := deviation(self.passes, kept, tolerance, max(now.sizes), at_once=at_once)) is not None:
            raise OtherWorkError(
                f"{where} {of_another_model(found, there, now)}. Undo the change to continue. {remedy}"
            )

    def _check_done(self, rows: Rows, done: list[Unit], unit: Unit, count: int) -> None:
        """Add a unit to those that are ``done``; refuse results that a sample alone, or this process, does not reproduce."""
        done.append(unit)
        now = self.probed.behaviour
        if len(done) == 1 and self.how.batch_size > 2:
            tolerance = max(now.tolerance(now)[0], self.probed.slack)
            kept = StoredRows.of_rows(rows, [unit])
            if (found := deviation(self.passes, kept, tolerance, max(now.sizes), of_unit=True)) is not None:
                raise ValueError(of_batches(found, self.how.batch_size))
        if len(done) == count and self.workers.size > 1:
            self._check_spots(
                StoredRows.of_rows(rows, done), "A worker", "Start every process with the same model, data and options."
            )

    def _check_unchanged(self, progress: Progress | None) -> None:
        """Refuse the results of a network that has changed since, and remove what was stored of them."""
        try:
            if self.computed:
                self.passes.check_unchanged(self.probed)
        except ValueError:
            if progress is not None:
                progress.remove()
            raise

    def _rows(self, known: list[Statistics], progress: Progress | None) -> Rows:
        """Rows with everything that is wanted; existing rows are not recomputed."""
        skipped: set[int] = set()
        if self.how.skip_nonfinite:
            skipped.update(n for statistics in known for n in statistics.skipped)
            for _, arrays in _pieces(progress):
                skipped.update(_nonfinite(arrays))
        checked = False
        while True:
            rows = Rows(self.denoiser, self.data, self.identity, tuple(sorted(skipped)))
            for statistics in known:
                rows.take_over(statistics)
            added = _added(rows, progress)
            if progress is not None and not checked:
                self._check_spots(StoredRows.of_rows(rows, added), progress.folder)
                checked = True
            if not (found := self._compute(rows, progress)):
                return rows
            skipped |= found
            if progress is not None:
                progress.flush()

    def _map(self, units: list[Unit]) -> Iterator[tuple[Unit, Arrays]]:
        return self.workers.map(self.passes.run, units, self.denoiser.at_once, hands_over=self.denoiser.waits)

    def _compute(self, rows: Rows, progress: Progress | None) -> set[int]:
        """Compute everything that the rows miss; return the samples that must be skipped, if any."""
        missing = rows.missing(self.wanted)
        # A network that cannot take several t at once gets one t per unit.
        units = cut(missing, rows.ranges, rows.skipped, self.how.batch_size, mixed=self.mixes)
        sizes = {unit: len(unit.steps) * len(self.passes.samples_of(unit)) for unit in units}
        found: set[int] = set()
        total = rows.samples * len(self.wanted)
        self.computed |= bool(units)
        self.workers.share([astuple(unit) for unit in units])
        options = {"initial": total - sum(sizes.values()), "unit_scale": True}
        with progress_bar(total, "estimate", " evaluations", self.how.progress, **options) as bar:
            done: list[Unit] = []
            for unit, arrays in self._map(units):
                if rows.add(unit, arrays):
                    self._check_done(rows, done, unit, len(units))
                if progress is not None:
                    progress.write(json.dumps(astuple(unit)), arrays)
                found.update(_nonfinite(arrays))
                bar.update(sizes[unit])
        return found


def _added(rows: Rows, progress: Progress | None) -> list[Unit]:
    """Add stored pieces to the rows, and return the units that the rows used."""
    try:
        return [unit for unit, arrays in _pieces(progress) if rows.add(unit, arrays)]
    except (IndexError, KeyError, TypeError, ValueError) as error:
        assert progress is not None
        raise OtherWorkError(
            f"{progress.folder} holds pieces that do not belong to this work ({type(error).__name__}: {error!s:.100}). {REMEDY}"
        ) from error


def _pieces(progress: Progress | None) -> Iterator[tuple[Unit, Arrays]]:
    for key, arrays in () if progress is None else progress.read():
        yield _unit_of(json.loads(key)), arrays


def _nonfinite(arrays: Arrays) -> list[int]:
    return arrays["nonfinite"].tolist() if "nonfinite" in arrays else []


def _save(statistics: Statistics, path: Path, progress: Progress) -> None:
    try:
        statistics.save(path)
    except OSError as error:
        progress.flush()  # which may raise the same error
        raise ProgressError(
            f"{path}: could not be written ({error.strerror or error}). All finished work is kept in "
            f"{progress.folder}; fix this and run the same command again."
        ) from error
    progress.remove()


def _unit_of(values: Any) -> Unit:
    steps, number, skipped = values
    return Unit(tuple(steps), number, tuple(skipped))


def _check_indices(indices: Iterable[int] | None, denoiser: Denoiser) -> npt.NDArray[np.int64]:
    """The grid indices to evaluate, ascending."""
    T = denoiser.process.T
    if indices is None:
        return np.arange(1, T + 1)
    wanted = np.unique(np.asarray(list(indices)))
    if wanted.size == 0 or wanted.dtype.kind not in "iu" or wanted[0] < 1 or wanted[-1] > T:
        raise ValueError(f"indices must be grid indices from 1 to T = {T}, or None for every one, not {indices!r}.")
    check_evaluated(denoiser.process, np.isin(np.arange(T + 1), wanted))
    return wanted.astype(np.int64)
