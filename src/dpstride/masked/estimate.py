"""Stage 3. `estimate_masked`: c_t of every sample, from one network pass per (count, batch).

Units of work, progress on disk, workers and probes are those of the Gaussian `estimate`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from .. import __version__
from ..runs.arguments import check_names, spelt_out
from ..runs.bars import progress_bar
from ..runs.behaviour import Behaviour
from ..runs.execution import Execution, Work
from ..runs.identity import OtherWorkError, check_identity
from ..runs.progress import Progress, progress_folder
from ..runs.storage import read_whole
from ..runs.workers import current
from ..statistics.spots import OF_UNIT, SPOTS, of_another_model, of_batches
from ..statistics.units import Unit, cut
from .denoiser import MaskedDenoiser
from .passes import MaskedPasses
from .process import MaskedProcess
from .spots import Booleans, deviation
from .statistics import Array, MaskedStatistics
from .tokens import Tokens


@spelt_out(Work, defaults=Execution)
def estimate_masked(
    denoiser: MaskedDenoiser,
    data: Any,
    samples: int | None = None,
    seed: int = 0,
    *,
    length: int | None = None,
    counts: Iterable[int] | None = None,
    **work: Unpack[Work],
) -> MaskedStatistics:
    """Mean −ln p of masked tokens at every number of masked tokens: length · samples / batch_size network passes.

    Probes come first (33 evaluations); they refuse a network that is random or mixes the samples of a batch. Then two numbers
    are recomputed one by one, resumed rows are recomputed at 16 places, and at the end four probes are repeated.
    In a launch of several processes the work is spread over them.

    Args:
        denoiser: the model.
        data: `Tokens`, or data as for `Tokens.of`.
        samples: number of samples to use, from the first on; all when None.
        seed: random seed of the masks. The result does not depend on batch_size or on the order of work.
        batch_size: samples per network pass.
        length: tokens of the grid; those of the longest sample when None. In samples of other sizes the same share is masked.
        counts: numbers of masked tokens at which the network runs, including ``length``; every one when None.
            Schedules visit only these.
        progress: show a progress bar (only ever on a terminal).
        checkpoint: file for the result. Until it is complete, finished work is kept in the folder ``checkpoint.progress``;
            called again after an interruption, the work resumes.
    """
    check_names(estimate_masked, work, Work)
    how, tokens = Execution(seed, **work), Tokens.read(data, samples)
    with current().telling():
        process = MaskedProcess(int(tokens.sizes.max()) if length is None else length, counts)
        return _Work(denoiser, tokens, how, process).statistics()


REMEDY = "Give another output, or remove it."


class _Work:
    """One call of `estimate_masked`, in each process of a launch; only the main one has files."""

    def __init__(self, denoiser: MaskedDenoiser, tokens: Tokens, how: Execution, process: MaskedProcess) -> None:
        tokens.check(denoiser)
        self.process, self.how, self.workers = process, how, current()
        self.passes = MaskedPasses(denoiser.on_grid(self.process), tokens, how)
        # Probed on the whole grid, so that the recorded behaviour of a model does not depend on the counts.
        self.whole = MaskedPasses(denoiser.on_grid(MaskedProcess(self.process.length)), tokens, how)
        self.probed = self.whole.probe()
        self.identity: dict[str, Any] = {
            "kind": "masked",
            "model": denoiser.describe(),
            "data": {"fingerprint": tokens.fingerprint, "samples": len(tokens)},
            "length": process.length,
            "seed": how.seed,
            "version": __version__,
            "behaviour": self.probed.behaviour.to_dict(),
        }
        self.computed = False
        self.workers.agree(self.identity)

    def statistics(self) -> MaskedStatistics:
        """Read existing results, compute the rest, and write everything."""
        path = self.how.path if self.workers.main else None
        nats = np.full((self.process.T + 1, len(self.passes.tokens)), np.nan)
        nats[0] = 0.0
        with self._progress(path) as kept:
            if path is not None and path.exists():
                self._take_over(nats, path)
                self._check_spots(nats, _known(nats), path)
            if kept is not None:
                known = _known(nats)
                self._add_kept(nats, kept)
                self._check_spots(nats, _known(nats) & ~known, kept.folder)
            self._compute(nats, kept)
            self._check_unchanged(kept)
            nats = self.workers.share_arrays({"nats": nats} if self.workers.main else None)["nats"]
            tokens = self.passes.tokens
            found = MaskedStatistics(self.process, nats, tokens.sizes, tokens.sequence, identity=self.identity)
            if path is not None and kept is not None:
                found.save(path)
                kept.remove()
        return found

    @contextlib.contextmanager
    def _progress(self, path: Path | None) -> Iterator[Progress | None]:
        if path is None:
            yield None
            return
        with Progress(progress_folder(path), self.identity) as progress:
            self.identity = progress.identity
            yield progress

    def _take_over(self, nats: Array, path: Path) -> None:
        found = read_whole(path, MaskedStatistics.load)
        if found is None:
            return
        self.identity = check_identity(path, found.identity, self.identity)
        if found.samples != nats.shape[1]:
            raise OtherWorkError(f"{path} claims to be of these data, but has {found.samples} samples. {REMEDY}")
        known = np.isin(self.process.counts, found.process.counts)
        nats[known] = found.nats[found.process.indices_of(self.process.counts[known])]

    def _compute(self, nats: Array, kept: Progress | None) -> None:
        ranges = self.passes.ranges
        missing = [
            [t for t in range(1, self.process.T + 1) if np.isnan(nats[t, part.start : part.stop]).any()]
            for part in ranges
        ]
        units = cut(missing, ranges, (), self.how.batch_size, mixed=self.probed.mixes)
        shared = self.workers.share([(unit.steps, unit.range) for unit in units])
        units = [Unit(tuple(steps), number) for steps, number in shared]
        done = nats.size - len(nats[0]) - int(np.isnan(nats).sum())
        total, shown = nats.size - len(nats[0]), self.how.progress and self.workers.main
        with progress_bar(total, "estimate", " evaluations", shown, initial=done, unit_scale=True) as bar:
            before, first = _known(nats), True
            for unit, arrays in self.workers.map(self.passes.run, units):
                arrays = {f"{unit.range}/{count}": row for count, row in arrays.items()}
                self._add(nats, arrays)
                if first and self.how.batch_size > 2:
                    self._check_batches(nats, _known(nats) & ~before)
                first = False
                if kept is not None:
                    kept.write(str(unit.range), arrays)
                bar.update(sum(row.size for row in arrays.values()))
        self.computed = bool(units)
        if self.workers.size > 1 and self.workers.main:
            self._check_spots(nats, _known(nats) & ~before, "A worker")

    def _check_spots(self, nats: Array, known: Booleans, where: object) -> None:
        """Recompute a few numbers of the rows of ``where``, and refuse rows that this model does not reproduce."""
        there, now = Behaviour.from_dict(self.identity["behaviour"]), self.probed.behaviour
        tolerance = max(there.tolerance(now)[0], self.probed.slack) * max(there.sizes)
        at_once = self.how.batch_size if self.probed.mixes else 1
        found = deviation(self.passes, nats, known, tolerance, count=SPOTS, at_once=at_once)
        if found is not None:
            raise OtherWorkError(f"{where} {of_another_model(found, there, now)}. Undo that to resume. {REMEDY}")

    def _check_batches(self, nats: Array, done: Booleans) -> None:
        """Refuse a unit whose numbers differ from those of a sample computed alone."""
        now = self.probed.behaviour
        tolerance = max(now.tolerance(now)[0], self.probed.slack) * max(now.sizes)
        if (found := deviation(self.passes, nats, done, tolerance, count=OF_UNIT)) is not None:
            raise ValueError(of_batches(found, self.how.batch_size))

    def _check_unchanged(self, kept: Progress | None) -> None:
        """Refuse the results of a network that has changed during the work, and delete those kept on disk."""
        try:
            if self.computed:
                self.whole.check_unchanged(self.probed)
        except ValueError:
            if kept is not None:
                kept.remove()
            raise

    def _add_kept(self, nats: Array, kept: Progress) -> None:
        try:
            for _, arrays in kept.read():
                self._add(nats, arrays)
        except (IndexError, TypeError, ValueError) as error:
            raise OtherWorkError(
                f"{kept.folder} holds pieces of other work ({type(error).__name__}: {error!s:.100}). {REMEDY}"
            ) from error

    def _add(self, nats: Array, arrays: dict[str, Array]) -> None:
        """Insert finished rows, named by range and count, except for unwanted counts."""
        for name, row in arrays.items():
            number, count = map(int, name.split("/"))
            if count in self.process.counts:
                part = self.passes.ranges[number]
                nats[self.process.indices_of([count])[0], part.start : part.stop] = row


def _known(nats: Array) -> Booleans:
    """Places that have a number, in all rows but the first."""
    known = ~np.isnan(nats)
    known[0] = False
    return known
