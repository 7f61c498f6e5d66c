"""Stage 3. `estimate`: one network pass per (t, batch), and everything that can be learnt from it."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from tqdm import tqdm

from ..denoiser import Denoiser
from . import artefact
from .artefact import BLOCK_NODES, Statistics
from .bins import MOMENTS, BinnedRows, chebyshev_nodes, moments_of, to_node_weights
from .data import Batch, Samples
from .decoder import decoder_nats, residual_costs, signed_residual
from .noise import check_seed, standard_normal

Array = npt.NDArray[np.float64]
CHECKPOINT_SECONDS = 30.0
_Binned = dict[int, tuple[npt.NDArray[np.int64], Array]] | None


def estimate(
    denoiser: Denoiser,
    data: Any,
    samples: int | None = None,
    seed: int = 0,
    batch_size: int = 64,
    data_range: object = "uint8",
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    steps: Iterable[int] | None = None,
) -> Statistics:
    """Statistics of ``denoiser`` on ``data`` at every grid index: T · ceil(samples / batch_size) network passes.

    Args:
        denoiser: the model; its process's grid is what is estimated.
        data: tensor or array [N, *shape], a pair (tensor, conditioning), a Dataset, or an iterable of batches.
        samples: how many samples to use, the first of ``data``; all when None.
        seed: names the noise. The result does not depend on batch_size or on the order of work.
        batch_size: samples per network pass.
        data_range: "uint8" (also float images on the 256-level lattice of [−1, 1]), ("levels", n, low, high) or
            "continuous".
        progress: show a progress bar (only ever on a terminal).
        checkpoint: a file to which finished rows are written as the work goes on, and from which it resumes. Rows that
            it holds are never evaluated again, whatever ``steps`` was when they were made.
        steps: the grid indices where the network runs; every one when None. Other rows are filled in from these, see
            `dpstride.statistics.interpolate`, and `Statistics.evaluated` tells the two apart.
    """
    seed = check_seed(seed)
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise ValueError(f"batch_size must be a whole number of at least 1, not {batch_size!r}.")
    gathered = Samples.read(data, samples, data_range)
    _warn_about_clipping(denoiser, gathered)
    rows = _Rows(denoiser, gathered, seed)
    path = None if checkpoint is None else Path(checkpoint)
    if path is not None and path.is_file():
        rows.resume(path)
    wanted = _check_steps(steps, denoiser.process.T)
    saved, done = time.monotonic(), rows.evaluated[wanted].sum()
    try:
        for t in tqdm(
            wanted[~rows.evaluated[wanted]].tolist(),
            total=len(wanted),
            initial=int(done),
            desc="estimate",
            unit="step",
            disable=None if progress else True,
            dynamic_ncols=True,
        ):
            row = _Row(rows, t)
            for first in range(0, len(gathered), batch_size):
                row.add(first, min(first + batch_size, len(gathered)))
            row.finish()
            if path is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                rows.save(path)
                saved = time.monotonic()
    except BaseException:  # Ctrl-C too: whatever stopped the work, finished rows are kept
        if path is not None and rows.evaluated.any():
            rows.save(path)
        raise
    statistics = rows.statistics()
    if not rows.evaluated[1:].all():
        statistics = import_module("dpstride.statistics.interpolate").fill(statistics, rows.evaluated)
    if path is not None:
        statistics.save(path)
    return statistics


def _check_steps(steps: Iterable[int] | None, T: int) -> npt.NDArray[np.int64]:
    """The grid indices to evaluate, ascending."""
    if steps is None:
        return np.arange(1, T + 1)
    wanted = np.unique(np.asarray(list(steps)))
    if wanted.size == 0 or wanted.dtype.kind not in "iu" or wanted[0] < 1 or wanted[-1] > T:
        raise ValueError(f"steps must be grid indices from 1 to T = {T}, or None for every one, not {steps!r}.")
    return wanted.astype(np.int64)


class _Rows:
    """Arrays for all t, filled row by row, and what identifies the work."""

    def __init__(self, denoiser: Denoiser, data: Samples, seed: int) -> None:
        self.denoiser, self.data, self.seed = denoiser, data, seed
        self.process = denoiser.process
        N = len(data)
        self.blocks = artefact.block_of_sample(N)
        self.block_sizes = np.bincount(self.blocks).astype(np.float64)
        self.discretised = data.data_range.levels is not None
        self.learned = denoiser.variance == "learned_range"
        shapes = artefact.array_shapes(self.process, N, self.discretised, self.learned)
        self.plain: dict[str, Any] = {name: np.zeros(shape) for name, shape in shapes.items()}
        self.plain["data_square"] = self._data_square()
        self.evaluated = np.zeros(self.process.T + 1, dtype=bool)
        self.residual_rows: _Binned = {} if self.discretised else None
        self.fraction_rows: _Binned = {} if self.learned else None
        # What must agree for two runs to be the same work; read before the network runs, which may change its values.
        self.identity: dict[str, Any] = {
            "process": self.process.fingerprint,
            "model": denoiser.describe(),
            "data": {"fingerprint": data.fingerprint, "samples": N},
            "data_range": data.data_range.describe(),
            "seed": seed,
        }

    def _data_square(self) -> Array:
        squares = [
            self.data.batch(first, first + 256, torch.device("cpu"), torch.float64).x.flatten(1).square().sum(1)
            for first in range(0, len(self.data), 256)
        ]
        return np.asarray(torch.cat(squares).numpy())

    def statistics(self) -> Statistics:
        return Statistics(
            process=self.process,
            dims=int(np.prod(self.data.shape)),
            data_range=self.data.data_range,
            seed=self.seed,
            model=self.identity["model"],
            data=self.identity["data"],
            residual_bins=self._binned(self.residual_rows, _EMPTY_RESIDUALS),
            fraction_bins=self._binned(self.fraction_rows, _EMPTY_FRACTIONS),
            evaluated=self.evaluated.copy(),
            **self.plain,
        )

    def _binned(self, rows: _Binned, empty: tuple[npt.NDArray[np.int64], Array]) -> BinnedRows | None:
        if rows is None:
            return None
        return BinnedRows.from_rows([rows.get(t, empty) for t in range(self.process.T + 1)])

    def save(self, path: Path) -> None:
        tensors, metadata = artefact.to_tensors(self.statistics())
        artefact.write_safetensors(path, tensors, metadata | {"complete": False})

    def resume(self, path: Path) -> None:
        """Take over the rows of a checkpoint at which the network ran."""
        found, _ = artefact.read_statistics(path)
        theirs = {
            "process": found.process.fingerprint,
            "model": found.model,
            "data": found.data,
            "data_range": found.data_range.describe(),
            "seed": found.seed,
        }
        if different := [key for key, value in self.identity.items() if theirs[key] != value]:
            raise ValueError(
                f"{path} holds other work: {', '.join(different)} differ. Give another checkpoint file, or remove it."
            )
        self.evaluated[:] = found.evaluated
        for name, array in self.plain.items():
            if name != "data_square":
                array[found.evaluated] = getattr(found, name)[found.evaluated]
        for name, rows in (("residual_bins", self.residual_rows), ("fraction_bins", self.fraction_rows)):
            if rows is not None:
                binned = getattr(found, name)
                for t in np.flatnonzero(found.evaluated).tolist():
                    entries = slice(int(binned.offsets[t]), int(binned.offsets[t + 1]))
                    rows[t] = binned.bins[entries], binned.moments[entries]


_EMPTY_RESIDUALS: tuple[npt.NDArray[np.int64], Array] = (np.zeros(0, dtype=np.int64), np.zeros((0, MOMENTS)))
_EMPTY_FRACTIONS: tuple[npt.NDArray[np.int64], Array] = (np.zeros(0, dtype=np.int64), np.zeros((0, 2, MOMENTS)))


class _Row:
    """One grid index t: batches are added, then `finish` leaves its row in the arrays."""

    def __init__(self, rows: _Rows, t: int) -> None:
        self.rows, self.t = rows, t
        process, B = rows.process, len(rows.block_sizes)
        if rows.discretised:
            self.mesh = artefact.residual_mesh(process, rows.data.data_range, t)
            self.residuals = np.zeros((MOMENTS, B, 2 * self.mesh.bins))
        if rows.learned:
            self.fraction_mesh = artefact.fraction_mesh(process, t)
            self.fractions = np.zeros((2, MOMENTS, B, self.fraction_mesh.bins))
        if rows.learned and rows.discretised and t < process.T:
            size = rows.plain["learned_decoder"].shape[1]
            self.delta = artefact.learned_decoder_nodes(process, t, size)
            self.learned_decoder = np.zeros((B, self.delta.size))

    def add(self, first: int, last: int) -> None:
        """One network pass on samples first … last − 1."""
        rows, t = self.rows, self.t
        denoiser, process = rows.denoiser, rows.process
        batch = rows.data.batch(first, last, denoiser.device, denoiser.algebra_dtype)
        noise = standard_normal(rows.seed, "forward", int(process.origin[t]), first, last - first, rows.data.shape)
        x_t = process.f[t] * batch.x + process.g[t] * noise.to(batch.x)
        prediction = denoiser(x_t, t, batch.conditioning)
        e = (batch.x - prediction.x0_hat).flatten(1)
        e2 = e.square()
        block = torch.from_numpy(rows.blocks[first:last]).to(e.device)[:, None].expand_as(e)
        rows.plain["squared_error"][t, first:last] = _numpy(e2.sum(1))
        if prediction.fraction is not None:
            self._add_fractions(prediction.fraction.flatten(1), e2, block, first, last)
        if rows.discretised:
            self._add_decoder(e, batch, prediction.fraction, block, first, last)

    def _add_fractions(self, fraction: Tensor, e2: Tensor, block: Tensor, first: int, last: int) -> None:
        rows, mesh = self.rows, self.fraction_mesh
        if (most := float(fraction.abs().max())) > mesh.LIMIT:
            raise ValueError(
                f"The variance fraction phi = (v + 1)/2 reached {most:.3g} at grid step t = {self.t}; a learned-range "
                f"network keeps it near [0, 1] (at most {mesh.LIMIT:g} is accepted). Does the network's second half of "
                "channels hold v?"
            )
        rows.plain["fraction_sum"][self.t, first:last] = _numpy(fraction.sum(1))
        index, z = mesh.locate(fraction)
        index = (index + block * mesh.bins).flatten()
        size, shape = len(rows.block_sizes) * mesh.bins, self.fractions.shape[1:]
        self.fractions[0] += moments_of(index, z.flatten(), None, size).reshape(shape)
        self.fractions[1] += moments_of(index, z.flatten(), e2.flatten(), size).reshape(shape)

    def _add_decoder(
        self, e: Tensor, batch: Batch, fraction: Tensor | None, block: Tensor, first: int, last: int
    ) -> None:
        rows, t, mesh = self.rows, self.t, self.mesh
        assert batch.edge is not None
        assert batch.low_edge is not None
        half_bin, g_t = rows.data.data_range.half_bin, float(rows.process.g[t])
        edge = batch.edge.flatten(1)
        q = signed_residual(e, batch.low_edge.flatten(1), edge)
        if (most := float(q.abs().max())) > mesh.reach:
            raise ValueError(
                f"x0_hat is {most:.3g} away from the data at grid step t = {t}, more than any denoiser can be (at most "
                f"{mesh.reach:.3g} is accepted). Check what the network predicts, or clip x0_hat."
            )
        rows.plain["decoder_upper"][t, first:last] = _numpy(decoder_nats(q, edge, half_bin, g_t).sum(1))
        index, z = mesh.locate(q)
        index = (index + mesh.bins * edge + 2 * mesh.bins * block).flatten()
        size = len(rows.block_sizes) * 2 * mesh.bins
        self.residuals += moments_of(index, z.flatten(), None, size).reshape(self.residuals.shape)
        if fraction is not None and t < rows.process.T:
            # ln sigma² = φ ln g_t² + (1 − φ) ln g̃² = ln g_t² − (1 − φ) δ
            shrink = (1.0 - fraction.flatten(1)) / 2.0
            for node, delta in enumerate(self.delta):
                sigma = g_t * (-shrink * delta).exp()
                cost = _numpy(decoder_nats(q, edge, half_bin, sigma).sum(1))
                np.add.at(self.learned_decoder[:, node], rows.blocks[first:last], cost)

    def finish(self) -> None:
        """Reduce the blocks to the row's totals, and to what standard errors need."""
        rows, t, N = self.rows, self.t, len(self.rows.data)
        sizes = rows.block_sizes
        if rows.discretised:
            assert rows.residual_rows is not None
            kept = np.flatnonzero(self.residuals[0].any(axis=0))
            moments = np.moveaxis(self.residuals[:, :, kept], 0, -1)  # [B, kept, MOMENTS]
            rows.residual_rows[t] = kept, moments.sum(axis=0)
            log_sigma = artefact.decoder_log_sigma_range(rows.process, rows.data.data_range, t)
            sigma = np.exp(chebyshev_nodes(*log_sigma, BLOCK_NODES))
            costs = residual_costs(self.mesh, kept, rows.data.data_range.half_bin, sigma)
            by_block = to_node_weights(moments).reshape(len(sizes), -1)
            means = by_block @ costs.reshape(-1, sigma.size) / sizes[:, None]
            rows.plain["decoder_blocks"][t] = np.log(np.maximum(means, 1e-300))
        if rows.learned:
            assert rows.fraction_rows is not None
            kept = np.flatnonzero(self.fractions[0, 0].any(axis=0))
            moments = np.moveaxis(self.fractions[:, :, :, kept], 1, -1)  # [2, B, kept, MOMENTS]
            rows.fraction_rows[t] = kept, moments.sum(axis=1).swapaxes(0, 1)
            delta = chebyshev_nodes(*artefact.fraction_range(rows.process, t), BLOCK_NODES)
            decay = np.exp(-self.fraction_mesh.points(kept)[..., None] * delta).reshape(-1, delta.size)
            weights = to_node_weights(moments).reshape(2, len(sizes), -1)
            both = (weights @ decay) / sizes[:, None]
            rows.plain["fraction_blocks"][t] = np.log(np.maximum(both, 1e-300)).swapaxes(0, 1)
        if rows.learned and rows.discretised and t < rows.process.T:
            rows.plain["learned_decoder"][t, : self.delta.size] = self.learned_decoder.sum(axis=0) / N
            rows.plain["learned_decoder_blocks"][t, :, : self.delta.size] = self.learned_decoder / sizes[:, None]
        rows.evaluated[t] = True


def _warn_about_clipping(denoiser: Denoiser, data: Samples) -> None:
    if denoiser.clip is None:
        return
    if data.data_range.levels is None:
        low, high = float(data.values.min()), float(data.values.max())
    else:
        low, high = data.data_range.low, data.data_range.high
    if low < denoiser.clip[0] - 1e-6 or high > denoiser.clip[1] + 1e-6:
        warnings.warn(
            f"x0_hat is clipped to {denoiser.clip}, but the data spans [{low:g}, {high:g}], so the model can never reach "
            "some of it. Pass clip=None, or the data's own range, to Denoiser.",
            stacklevel=3,
        )


def _numpy(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().cpu().double().numpy())
