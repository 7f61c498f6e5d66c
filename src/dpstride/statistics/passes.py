"""Stage 3. Network passes: a unit of work → a piece per grid index, with everything that later stages need.

A batch may hold several t, so that it is full even with few samples. Sums over a unit's samples are kept per block until
all samples are added, and then reduced to what later stages need.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..denoiser import Denoiser, NonFiniteError, is_out_of_memory
from ..options import LEARNED_RANGE
from ..runs.execution import Execution
from ..runs.storage import Arrays
from . import artefact
from .artefact import BLOCK_NODES
from .bins import MOMENTS, chebyshev_nodes, moments_of, to_node_weights
from .data import Batch, Samples
from .decoder import decoder_nats, residual_costs, signed_residual
from .elements import Elements
from .learned_decoder import LearnedDecoder
from .noise import standard_normal
from .probes import COUNT, Probed, check_unchanged, probe
from .units import Unit, batches, sample_ranges

Array = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class Passes:
    """Network passes of ``denoiser`` over ``data``; a unit's result does not depend on the units before it."""

    def __init__(self, denoiser: Denoiser, data: Samples, how: Execution) -> None:
        self.denoiser, self.data, self.seed = denoiser, data, how.seed
        self.batch_size, self.skip_nonfinite = how.batch_size, how.skip_nonfinite
        self.process = denoiser.process
        self.ranges = sample_ranges(len(data))
        self.blocks = artefact.block_of_sample(len(data))
        self.dims = data.dims
        self.learned = denoiser.variance == LEARNED_RANGE
        self.discretised = data.data_range.levels is not None
        self.decoder_nodes = artefact.learned_decoder_size(self.process) if self.learned and self.discretised else 0

    def samples_of(self, unit: Unit) -> Indices:
        """The samples of a unit, which are the same at each of its t."""
        return np.setdiff1d(np.array(self.ranges[unit.range]), unit.skipped).astype(np.int64)

    def run(self, unit: Unit) -> Arrays:
        """The pieces of a unit, as arrays named "t/field"; or only "nonfinite", the samples to be skipped."""
        samples = self.samples_of(unit)
        t_of, sample_of = np.repeat(unit.steps, len(samples)), np.tile(samples, len(unit.steps))
        rows: dict[int, _Row] = {}
        pieces: Arrays = {}
        nonfinite: set[int] = set()
        waiting = [(place.start, place.stop) for place in batches(len(t_of), self.batch_size)]
        made: dict[tuple[int, int], tuple[Tensor, Batch]] = {}  # the next batch, prepared while the network runs

        def noisy(place: tuple[int, int]) -> tuple[Tensor, Batch]:
            return made.pop(place) if place in made else self.noisy(t_of[slice(*place)], sample_of[slice(*place)])

        def meanwhile() -> None:
            if self.denoiser.waits and waiting:
                made[waiting[0]] = noisy(waiting[0])

        while waiting:
            first, last = waiting.pop(0)
            if last - first > self.batch_size:  # which was reduced meanwhile
                parts = batches(last - first, self.batch_size)
                waiting[:0] = [(first + part.start, first + part.stop) for part in parts]
                made.clear()
                continue
            for t in np.unique(t_of[first:last]).tolist():
                if t not in rows:
                    rows[t] = _Row(self, t, samples)
            try:
                x_t, batch = noisy((first, last))
                found = self._pass(x_t, batch, t_of[first:last], sample_of[first:last], rows=rows, meanwhile=meanwhile)
            except NonFiniteError as error:
                if not self.skip_nonfinite:
                    raise self._naming(error, t_of[first:last], sample_of[first:last]) from error
                nonfinite.update(sample_of[first:last][error.positions].tolist())
                continue
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error) or last - first == 1:
                    raise
                self._halve(last - first)
                made.clear()
                waiting.insert(0, (first, last))
                continue
            for t, sums in found.items():
                if rows[t].add(sums):
                    pieces |= {f"{t}/{name}": array for name, array in rows.pop(t).finish().items()}
        return {"nonfinite": np.array(sorted(nonfinite))} if nonfinite else pieces

    def probe(self) -> Probed:
        """Run the probes: the work's own inputs at four of its samples, far apart, so that conditioning differs."""
        samples = self.data.varied(COUNT)
        return probe(self.denoiser, self._probe_inputs, samples, self.batch_size)

    def check_unchanged(self, probed: Probed) -> None:
        """Run a few of the probes again; ValueError if the network has changed."""
        check_unchanged(self.denoiser, self._probe_inputs, probed)

    def _probe_inputs(self, t: Indices, samples: Indices) -> tuple[Tensor, Any]:
        x_t, batch = self.noisy(t, samples)
        return x_t, batch.conditioning

    # --- one batch ----------------------------------------------------------------------------------------------------

    def _batch(self, samples: Indices) -> Batch:
        first, last = int(samples[0]), int(samples[-1]) + 1
        device, dtype = self.denoiser.device, self.denoiser.algebra_dtype
        if (np.diff(samples) == 1).all():
            return self.data.batch(first, last, device, dtype)
        return self.data.take(samples.tolist()).batch(0, len(samples), device, dtype)

    def noisy(self, t: Indices, samples: Indices) -> tuple[Tensor, Batch]:
        """x_t = f_t x_0 + g_t ε, with the noise of each (t, sample)."""
        batch = self._batch(samples)
        # Noise is drawn in runs of consecutive samples of one t.
        starts = np.flatnonzero((np.diff(t, prepend=-1) != 0) | (np.diff(samples, prepend=-1) != 1))
        noise = torch.cat(
            [
                standard_normal(
                    self.seed,
                    "forward",
                    int(self.process.origin[t[start]]),
                    int(samples[start]),
                    count=stop - start,
                    shape=self.data.shape,
                )
                for start, stop in itertools.pairwise([*starts.tolist(), len(t)])
            ]
        )
        per_sample = (-1, *[1] * len(self.data.shape))
        f, g = (
            torch.from_numpy(array[t]).to(batch.x).reshape(per_sample) for array in (self.process.f, self.process.g)
        )
        return f * batch.x + g * noise.to(batch.x), batch

    def _pass(
        self,
        x_t: Tensor,
        batch: Batch,
        t: Indices,
        samples: Indices,
        *,
        rows: dict[int, _Row],
        meanwhile: Callable[[], None],
    ) -> dict[int, _Sums]:
        """One network pass and its sums by t; ``meanwhile`` is called while the network runs."""
        pending = self.denoiser.begin(x_t, torch.from_numpy(t), batch.conditioning)
        meanwhile()
        prediction = pending()
        e = (batch.x - prediction.x0_hat).flatten(1)
        starts = np.flatnonzero(np.diff(t, prepend=-1)).tolist()
        found = {}
        for start, stop in itertools.pairwise([*starts, len(t)]):
            fraction, low_edge, edge, mask = (
                None if whole is None else whole[start:stop].flatten(1)
                for whole in (prediction.fraction, batch.low_edge, batch.edge, batch.mask)
            )
            row = rows[int(t[start])]
            found[row.t] = row.sums(samples[start:stop], e[start:stop], fraction, low_edge, edge=edge, mask=mask)
        return found

    # --- faults -------------------------------------------------------------------------------------------------------

    def _halve(self, size: int) -> None:
        self.batch_size = (size + 1) // 2
        warnings.warn(
            f"Out of memory with {size} samples in a batch; continuing with {self.batch_size}. The result is the same up to "
            f"the network's rounding; batch_size={self.batch_size} avoids the attempt.",
            stacklevel=2,
        )

    def _naming(self, error: NonFiniteError, t: Indices, samples: Indices) -> NonFiniteError:
        where = [f"sample {samples[i]} at grid step t = {t[i]}" for i in error.positions[:3]]
        more = len(error.positions) - len(where)
        return NonFiniteError(
            f"The network returned NaN or infinity for {', '.join(where)}{f' and {more} more' if more else ''}, in a batch "
            f"of {len(t)} (samples {samples.min()} to {samples.max()}, t = {t.min()} to {t.max()}). Check its weights and "
            "precision (float16 overflows; try bfloat16 or float32), or leave such samples out with skip_nonfinite "
            "(--skip-nonfinite).",
            error.positions,
        )


# --- sums of one row --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sums:
    """Contribution of some samples to a row: columns ``place`` of per-sample fields, and sums of ``blocks``."""

    place: slice
    single: dict[str, Array]
    blocks: slice
    residuals: Array | None = None  # [b, 2 · bins, MOMENTS]
    fractions: Array | None = None  # [b, bins, 2, MOMENTS]
    learned_decoder: tuple[Array | None, Array] | None = None


class _Row:
    """One grid index t on the samples of one unit: sums are added, then `finish` returns its piece."""

    def __init__(self, passes: Passes, t: int, samples: Indices) -> None:
        self.passes, self.t, self.samples = passes, t, samples
        self.missing = len(samples)
        # Blocks with samples of this unit, numbered from 0.
        self.block = np.unique(passes.blocks[samples], return_inverse=True)[1]
        self.sizes = np.bincount(self.block).astype(np.float64)
        process, B = passes.process, len(self.sizes)
        self.piece: Arrays = {}
        self.learned_decoder: LearnedDecoder | None = None
        if passes.discretised:
            self.mesh = artefact.residual_mesh(process, passes.data.data_range, t)
            self.residuals = np.zeros((B, 2 * self.mesh.bins, MOMENTS))
        if passes.learned:
            self.fraction_mesh = artefact.fraction_mesh(process, t)
            self.fractions = np.zeros((B, self.fraction_mesh.bins, 2, MOMENTS))
        if passes.decoder_nodes and t < process.T:
            delta = artefact.learned_decoder_nodes(process, t, passes.decoder_nodes)
            half_bin, elements = passes.data.data_range.half_bin, round(len(samples) * passes.dims)
            self.learned_decoder = LearnedDecoder(delta, half_bin, float(process.g[t]), B, elements=elements)

    def sums(
        self,
        samples: Indices,
        e: Tensor,
        fraction: Tensor | None,
        low_edge: Tensor | None,
        edge: Tensor | None,
        mask: Tensor | None,
    ) -> _Sums:
        """Sums of some of the samples, from residuals e and, if there are any, φ, edges and the mask, [n, dims] each.

        Nothing is added yet, so that a pass that runs out of memory can be repeated.
        """
        first = int(np.searchsorted(self.samples, samples[0]))
        place = slice(first, first + len(samples))
        blocks = slice(int(self.block[place][0]), int(self.block[place][-1]) + 1)
        count = blocks.stop - blocks.start
        block = self.block[place] - blocks.start
        counted = Elements(mask)
        block, e = counted.blocks(block), counted.of(e)
        e2 = e.square()
        single = {"squared_error": _numpy(counted.sums(e2))}
        residuals = fractions = learned_decoder = None
        if fraction is not None:
            fraction = counted.of(fraction)
            fractions = self._fractions(fraction, e2, block, count)
            single["fraction_sum"] = _numpy(counted.sums(fraction))
        if low_edge is not None and edge is not None:
            edge = counted.of(edge)
            q = signed_residual(e, counted.of(low_edge), edge)
            residuals = self._residuals(q, edge, block, count)
            half_bin, g_t = self.passes.data.data_range.half_bin, float(self.passes.process.g[self.t])
            single["decoder_upper"] = _numpy(counted.sums(decoder_nats(q, edge, half_bin, g_t)))
            if fraction is not None and self.learned_decoder is not None:
                learned_decoder = self.learned_decoder.sums_of(q, edge, fraction, block)
        return _Sums(place, single, blocks, residuals, fractions=fractions, learned_decoder=learned_decoder)

    def add(self, sums: _Sums) -> bool:
        """Add the sums of some samples; True once all are added."""
        for name, values in sums.single.items():
            self.piece.setdefault(name, np.zeros(len(self.samples)))[sums.place] = values
        if sums.residuals is not None:
            self.residuals[sums.blocks] += sums.residuals
        if sums.fractions is not None:
            self.fractions[sums.blocks] += sums.fractions
        if sums.learned_decoder is not None and self.learned_decoder is not None:
            self.learned_decoder.add(sums.blocks, *sums.learned_decoder)
        self.missing -= sums.place.stop - sums.place.start
        return self.missing == 0

    def _fractions(self, fraction: Tensor, e2: Tensor, block: Indices, count: int) -> Array:
        mesh = self.fraction_mesh
        if (most := float(fraction.abs().max())) > mesh.LIMIT:
            raise ValueError(
                f"The variance fraction phi = (v + 1)/2 reached {most:.3g} at grid step t = {self.t}; a learned-range "
                f"network keeps it near [0, 1] (at most {mesh.LIMIT:g} is accepted). Does the second half of the "
                "network's channels hold v?"
            )
        if _by_kernels(fraction):
            from . import kernels

            sums = np.zeros((count, *self.fractions.shape[1:]))
            kernels.add_fractions(mesh, fraction.numpy(), e2.numpy(), block, sums=sums, threads=torch.get_num_threads())
            return sums
        index, z = mesh.locate(fraction)
        index, z = (index + _per_element(block, fraction) * mesh.bins).flatten(), z.flatten()
        weighted = [moments_of(index, z, weights, count * mesh.bins) for weights in (None, e2.flatten())]
        return np.moveaxis(np.stack(weighted).reshape(2, MOMENTS, count, mesh.bins), (0, 1), (2, 3))

    def _residuals(self, q: Tensor, edge: Tensor, block: Indices, count: int) -> Array:
        mesh = self.mesh
        if (most := float(q.abs().max())) > mesh.reach:
            raise ValueError(
                f"x0_hat is {most:.3g} away from the data at grid step t = {self.t}, more than any denoiser can be (at "
                f"most {mesh.reach:.3g} is accepted). Check what the network predicts, or clip x0_hat."
            )
        if _by_kernels(q):
            from . import kernels

            sums = np.zeros((count, *self.residuals.shape[1:]))
            kernels.add_residuals(mesh, q.numpy(), edge.numpy(), block, sums=sums, threads=torch.get_num_threads())
            return sums
        index, z = mesh.locate(q)
        index = (index + mesh.bins * edge + 2 * mesh.bins * _per_element(block, q)).flatten()
        moments = moments_of(index, z.flatten(), None, count * 2 * mesh.bins)
        return np.moveaxis(moments.reshape(MOMENTS, count, 2 * mesh.bins), 0, 2)

    def finish(self) -> Arrays:
        """Reduce the blocks to totals over samples, and to what standard errors need."""
        passes, t, sizes, piece = self.passes, self.t, self.sizes, self.piece
        if passes.discretised:
            data_range = passes.data.data_range
            kept = np.flatnonzero(self.residuals[:, :, 0].any(axis=0))
            moments = self.residuals[:, kept]
            log_sigma = artefact.decoder_log_sigma_range(passes.process, data_range, t)
            sigma = np.exp(chebyshev_nodes(*log_sigma, BLOCK_NODES))
            costs = residual_costs(self.mesh, kept, data_range.half_bin, sigma)
            by_block = to_node_weights(moments).reshape(len(sizes), -1)
            means = by_block @ costs.reshape(-1, sigma.size) / sizes[:, None]
            piece["decoder_blocks"] = np.log(np.maximum(means, 1e-300))
            piece["residual_bins"], piece["residual_moments"] = kept, moments.sum(axis=0)
        if passes.learned:
            kept = np.flatnonzero(self.fractions[:, :, 0, 0].any(axis=0))
            moments = np.moveaxis(self.fractions[:, kept], 2, 0)  # [2, B, kept, MOMENTS]
            delta = chebyshev_nodes(*artefact.fraction_range(passes.process, t), BLOCK_NODES)
            decay = np.exp(-self.fraction_mesh.points(kept)[..., None] * delta).reshape(-1, delta.size)
            weights = to_node_weights(moments).reshape(2, len(sizes), -1)
            both = (weights @ decay) / sizes[:, None]
            piece["fraction_blocks"] = np.log(np.maximum(both, 1e-300)).swapaxes(0, 1)
            piece["fraction_bins"], piece["fraction_moments"] = kept, moments.sum(axis=1).swapaxes(0, 1)
        if passes.decoder_nodes:
            blocks = np.zeros((len(sizes), passes.decoder_nodes))
            if self.learned_decoder is not None:
                blocks[:, : self.learned_decoder.delta.size] = self.learned_decoder.totals() / sizes[:, None]
            piece["learned_decoder_blocks"] = blocks
        return piece


class ClippingWarning(UserWarning):
    """Clipping keeps the model from reaching some of the data."""


def warn_about_clipping(denoiser: Denoiser, *parts: Samples) -> None:
    """Warn if clipping keeps the model from reaching some of the data."""
    if words := clipping_words(denoiser.clip, *parts):
        warnings.warn(words, ClippingWarning, stacklevel=4)


def clipping_words(clip: tuple[float, float] | None, *parts: Samples) -> str:
    """A warning that x̂_0 is clipped to less than the range of the data; empty if it is not."""
    ranges = [
        (float(data.counted_values.min()), float(data.counted_values.max()))
        if data.data_range.levels is None
        else (data.data_range.low, data.data_range.high)
        for data in parts
    ]
    low, high = min(each[0] for each in ranges), max(each[1] for each in ranges)
    if clip is None or (low >= clip[0] - 1e-6 and high <= clip[1] + 1e-6):
        return ""
    return (
        f"x0_hat is clipped to {clip}, but the data spans [{low:g}, {high:g}], so the model can never reach some of it. "
        "Pass clip=None, or the data's own range, to Denoiser."
    )


def _by_kernels(tensor: Tensor) -> bool:
    """Return whether compiled kernels can be used: devices other than the CPU use torch's own."""
    return tensor.device.type == "cpu" and tensor.dtype == torch.float64


def _per_element(block: Indices, like: Tensor) -> Tensor:
    return torch.from_numpy(block).to(like.device)[:, None].expand_as(like)


def _numpy(tensor: Tensor) -> Array:
    return np.asarray(tensor.detach().cpu().double().numpy())
