"""Stage 3. `Statistics`: the results of one network pass per t, saved and loaded as safetensors.

Everything that any variance option and any decoder option needs is here, so that changing an option takes no network
pass. Sums are over the dims dimensions of a sample, in nats where they are costs, always float64. Rows are grid
indices t; row 0 is unused.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..options import LEARNED_RANGE
from ..process import ARRAYS, ForwardProcess
from ..reading.text import printable
from ..runs.artefacts import Artefact
from ..runs.behaviour import Behaviour
from ..runs.storage import Arrays
from .bins import MOMENTS, BinnedRows, EvenMesh, GradedMesh, chebyshev_nodes

Array = npt.NDArray[np.float64]
BLOCKS = 32  # groups of samples whose spread gives standard errors of quantities too large to store per sample
BLOCK_NODES = 12  # at which these groups are evaluated; a standard error needs three digits, not ten
_EVERYWHERE = np.zeros(0, dtype=bool)


class StatisticsFileError(ValueError):
    """A statistics file that cannot be read as one."""


KIND = Artefact("dpstride-statistics", 2, "statistics", "estimate again", error=StatisticsFileError)


@dataclass(frozen=True)
class DataRange:
    """Values that data can take: ``levels`` of them from ``low`` to ``high``, or anything (levels = None)."""

    levels: int | None
    low: float = -1.0
    high: float = 1.0

    @classmethod
    def parse(cls, option: object) -> DataRange:
        """From "uint8", ("levels", n, low, high) or "continuous"."""
        match option:
            case DataRange():
                return option
            case "uint8":
                return cls(256)
            case "continuous":
                return cls(None)
            case ("levels", int(n), (int() | float()) as low, (int() | float()) as high):
                if n < 2 or not -np.inf < low < high < np.inf:
                    raise ValueError(
                        f"('levels', n, low, high) needs n >= 2 and finite low < high, not {option!r:.80}."
                    )
                return cls(n, float(low), float(high))
        raise ValueError(f"data_range must be 'uint8', ('levels', n, low, high) or 'continuous', not {option!r:.80}.")

    @property
    def step(self) -> float:
        """Distance between two levels."""
        assert self.levels is not None
        return (self.high - self.low) / (self.levels - 1)

    @property
    def half_bin(self) -> float:
        """Half the distance between two levels."""
        return 0.5 * self.step

    def describe(self) -> str | list[Any]:
        """The option as written by the user."""
        if self.levels is None:
            return "continuous"
        if (self.levels, self.low, self.high) == (256, -1.0, 1.0):
            return "uint8"
        return ["levels", self.levels, self.low, self.high]


@dataclass(frozen=True, eq=False)
class Statistics:
    """Monte Carlo statistics of a denoiser on data, at every grid index; see the fields.

    Decoder fields are for discretised data and fraction fields for learned-range models, else None. Rows where the
    network did not run (``evaluated`` is False) were interpolated from those where it did.
    """

    process: ForwardProcess
    dims: float  # number of elements of a sample that count, mean over samples
    data_range: DataRange
    seed: int
    model: dict[str, Any]  # Denoiser.describe()
    data: dict[str, Any]  # fingerprint, samples, and which were skipped, if any
    squared_error: Array  # [T+1, N]  Σ e² of each sample
    data_square: Array  # [N]  Σ x_0² of each sample
    decoder_upper: Array | None = None  # [T+1, N]  decoder cost of each sample with variance g_t²
    residual_bins: BinnedRows | None = None  # residuals by edge class (interior first), summed over samples
    decoder_blocks: Array | None = None  # [T+1, B, J]  ln of the block's mean decoder cost at J values of ln sigma
    fraction_sum: Array | None = None  # [T+1, N]  Σ φ
    fraction_bins: BinnedRows | None = None  # φ weighted by 1 and by e², summed over samples
    fraction_blocks: Array | None = None  # [T+1, B, 2, J]  ln of the block's mean Σ exp(−φδ) and Σ e² exp(−φδ)
    learned_decoder: Array | None = None  # [T+1, J']  mean decoder cost with learned variance at J' values of δ
    learned_decoder_blocks: Array | None = None  # [T+1, B, J']
    predicted: Array | None = None  # [N]  number of elements predicted in each sample, if the model is given the others
    evaluated: npt.NDArray[np.bool_] = field(
        default_factory=lambda: _EVERYWHERE
    )  # [T+1]  where the network ran; not at 0
    version: str = field(default=__version__)
    behaviour: Behaviour | None = None  # by which `estimate` recognises the model; files of version 0.1.0 have none

    def __post_init__(self) -> None:
        if self.evaluated is _EVERYWHERE:
            object.__setattr__(self, "evaluated", np.arange(self.process.T + 1) > 0)

    def __repr__(self) -> str:
        name, ran = printable(str(self.model.get("name")), 60), int(self.evaluated[1:].sum())
        where = f"{ran} of {self.process.T} steps" if ran < self.process.T else f"all {ran} steps"
        data = f"{self.samples} samples of {self.dims:.10g} dims"
        return f"<Statistics of {name} on {data}, evaluated at {where}, seed {self.seed}>"

    @property
    def samples(self) -> int:
        """Number of data samples."""
        return int(self.squared_error.shape[1])

    @property
    def block_of_sample(self) -> npt.NDArray[np.int64]:
        """Block of each sample: contiguous, as equal in size as possible, independent of the batch size."""
        return block_of_sample(self.samples, self.skipped)

    @property
    def block_dims(self) -> Any:
        """Mean number of elements of a sample that count, by block; a single number if all elements count."""
        if self.predicted is None:
            return self.dims
        return np.bincount(self.block_of_sample, self.predicted) / np.bincount(self.block_of_sample)

    @property
    def skipped(self) -> tuple[int, ...]:
        """Samples of the data that were left out because the network returned NaN or infinity for them at some t."""
        return tuple(self.data.get("skipped", ()))

    @property
    def skipped_note(self) -> str:
        """Number and indices of the skipped samples, in words."""
        listed = ", ".join(map(str, self.skipped[:10])) + (", …" if len(self.skipped) > 10 else "")
        return (
            f"{len(self.skipped)} of {self.samples + len(self.skipped)} samples were left out, for which the network "
            f"returned NaN or infinity: {listed}."
        )

    @property
    def mean_squared_error(self) -> Array:
        """E Σ e² / dims at every t, the m of method.md."""
        return np.asarray(self.squared_error.mean(axis=1) / self.dims)

    @property
    def standard_error(self) -> Array:
        """Standard error of `mean_squared_error` at every t; NaN for a single sample."""
        if self.samples < 2:
            return np.full(self.process.T + 1, np.nan)
        return np.asarray(self.squared_error.std(axis=1, ddof=1) / np.sqrt(self.samples) / self.dims)

    def check_process(self, process: ForwardProcess) -> None:
        """Raise if these statistics belong to another process than ``process``."""
        if process.fingerprint != self.process.fingerprint:
            raise ValueError(
                f"These statistics were estimated on the process {self.process.name!r} (T = {self.process.T}, "
                f"fingerprint {self.process.fingerprint}), not on {process.name!r} (T = {process.T}, fingerprint "
                f"{process.fingerprint}). Estimate them again on this process."
            )

    # --- bins and nodes of distributions, in one place, because estimate and costs must agree --------------------------

    def residual_mesh(self, t: int) -> GradedMesh:
        """Bins of the residuals at t."""
        return residual_mesh(self.process, self.data_range, t)

    def fraction_mesh(self, t: int) -> EvenMesh:
        """Bins of φ at t."""
        return fraction_mesh(self.process, t)

    # --- saving ----------------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to ``path`` (safetensors with JSON metadata), atomically."""
        KIND.write(Path(path), *to_tensors(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Statistics:
        """Read what `save` wrote; a truncated, changed, foreign or newer file raises `StatisticsFileError`."""
        with KIND.read(Path(path)) as (tensors, metadata):
            return from_tensors(tensors, metadata)


# --- layout shared by estimate, which writes it, and costs, which read it ---------------------------------------------


def block_of_sample(samples: int, skipped: Sequence[int] = ()) -> npt.NDArray[np.int64]:
    """Block index of each of the ``samples`` left without the ``skipped`` ones; skipping moves no other sample."""
    total = samples + len(skipped)
    block = np.arange(total) * min(BLOCKS, total) // total
    return np.unique(np.delete(block, list(skipped)), return_inverse=True)[1]


def array_shapes(
    process: ForwardProcess,
    samples: int,
    discretised: bool,
    learned: bool,
    *,
    skipped: Sequence[int] = (),
    counted: bool = False,
) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the plain arrays of statistics; ``counted`` if the model is given some elements."""
    T, blocks = process.T, int(block_of_sample(samples, skipped)[-1]) + 1
    shapes: dict[str, tuple[int, ...]] = {"squared_error": (T + 1, samples), "data_square": (samples,)}
    if counted:
        shapes |= {"predicted": (samples,)}
    if discretised:
        shapes |= {"decoder_upper": (T + 1, samples), "decoder_blocks": (T + 1, blocks, BLOCK_NODES)}
    if learned:
        shapes |= {"fraction_sum": (T + 1, samples), "fraction_blocks": (T + 1, blocks, 2, BLOCK_NODES)}
    if discretised and learned:
        size = learned_decoder_size(process)
        shapes |= {"learned_decoder": (T + 1, size), "learned_decoder_blocks": (T + 1, blocks, size)}
    return shapes


def residual_mesh(process: ForwardProcess, data_range: DataRange, t: int) -> GradedMesh:
    """Bins fine enough for the smallest decoder variance that any option uses at t."""
    least = data_range.half_bin / 16.0  # below this the optimal decoder has nothing to gain
    if t < process.T:
        least = min(least, float(np.sqrt(process.posterior_variance(t + 1, t))))
    if process.origin[t] == 1 and process.first_pair_variance is not None:
        least = min(least, float(np.sqrt(process.first_pair_variance)))
    return GradedMesh(data_range.half_bin, least)


def decoder_log_sigma_range(process: ForwardProcess, data_range: DataRange, t: int) -> tuple[float, float]:
    """Range of ln sigma that `decoder_blocks` covers at t."""
    least = residual_mesh(process, data_range, t).sigma
    return float(np.log(least)), float(np.log(4.0 * max(process.g[t], data_range.half_bin)))


def fraction_range(process: ForwardProcess, t: int) -> tuple[float, float]:
    """Range of δ that occurs at t: ln(g_t²/g_s²) of steps to s, 0 < s < t, and the learned decoder's."""
    steps = float(2.0 * np.log(process.g[t] / process.g[1]))
    return 0.0, max(steps, float(learned_decoder_delta(process, t)[0])) if t < process.T else steps


def fraction_mesh(process: ForwardProcess, t: int) -> EvenMesh:
    """Bins of φ so narrow that exp(−φδ) varies by at most a factor e within one, for every δ of the row."""
    _, most = fraction_range(process, t)
    return EvenMesh(2.0 ** -max(0.0, np.ceil(np.log2(max(most, 1e-9)))))


def learned_decoder_delta(process: ForwardProcess, t: int) -> Array:
    """δ = ln(g_t²/g̃²(t, t2)) for every t2 > t, on which the learned respaced decoder depends; descending."""
    return np.asarray(
        2.0 * np.log(process.g[t]) - np.log(process.posterior_variance(np.arange(t + 1, process.T + 1), t))
    )


@functools.lru_cache(maxsize=4)
def learned_decoder_size(process: ForwardProcess) -> int:
    """Chebyshev nodes in δ that reach 1e-10 for φ in [0, 1]: ln p is analytic in ln sigma in a strip of ±π/4."""
    t = np.arange(1, process.T)
    delta = 2.0 * np.log(process.g[t]) - np.log(process.posterior_variance(t + 1, t))  # the largest of each t
    most = float(delta.max(initial=0.0)) if t.size else 1.0
    return int(np.ceil(24.0 / np.arcsinh(np.pi / max(most, 1e-3)))) + 4


def learned_decoder_nodes(process: ForwardProcess, t: int, size: int) -> Array:
    """The δ at which the learned decoder is evaluated at t: all that occur if they are few, else Chebyshev nodes."""
    delta = learned_decoder_delta(process, t)
    return delta if delta.size <= size else chebyshev_nodes(0.0, float(delta[0]), size)


# --- safetensors -------------------------------------------------------------------------------------------------------

_BINNED = ("residual_bins", "fraction_bins")


def to_tensors(statistics: Statistics) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the metadata of a complete file."""
    tensors = {f"process.{name}": array for name, array in statistics.process.arrays.items()}
    discretised, learned = statistics.data_range.levels is not None, statistics.fraction_bins is not None
    counted = statistics.predicted is not None
    shapes = array_shapes(
        statistics.process, statistics.samples, discretised, learned, skipped=statistics.skipped, counted=counted
    )
    tensors |= {name: getattr(statistics, name) for name in shapes} | {"evaluated": statistics.evaluated}
    for name in _BINNED:
        if (rows := getattr(statistics, name)) is not None:
            tensors |= {f"{name}.{part}": getattr(rows, part) for part in ("offsets", "bins", "moments")}
    process = statistics.process
    metadata = {
        "T": process.T,
        "process": process.facts,
        "dims": None if counted else statistics.dims,  # None, which version 0.1 refuses
        "data_range": statistics.data_range.describe(),
        "seed": statistics.seed,
        "model": statistics.model,
        "data": statistics.data,
        "version": statistics.version,
    }
    if statistics.behaviour is not None:
        metadata["behaviour"] = statistics.behaviour.to_dict()
    return tensors, metadata


def from_tensors(tensors: Arrays, metadata: dict[str, Any]) -> Statistics:
    """Statistics from what `to_tensors` returned; a missing or misshapen part raises KeyError or ValueError."""
    arrays: dict[str, Any] = {name: tensors[f"process.{name}"] for name in ARRAYS}
    process = ForwardProcess(**arrays, **metadata["process"])
    option = metadata["data_range"]
    data_range = DataRange.parse(tuple(option) if isinstance(option, list) else option)
    discretised, learned = data_range.levels is not None, metadata["model"]["variance"] == LEARNED_RANGE
    data = metadata["data"]
    _shaped(tensors, "squared_error", (process.T + 1, data["samples"]))  # before anything of that size is allocated
    counted, skipped = metadata["dims"] is None, data.get("skipped", ())
    shapes = array_shapes(process, data["samples"], discretised, learned, skipped=skipped, counted=counted)
    fields: dict[str, Any] = {name: _shaped(tensors, name, shape) for name, shape in shapes.items()}
    fields["evaluated"] = _shaped(tensors, "evaluated", (process.T + 1,)).astype(bool)
    for name, weights in (("residual_bins", ()), ("fraction_bins", (2,))):
        if discretised if name == "residual_bins" else learned:
            offsets = _shaped(tensors, f"{name}.offsets", (process.T + 2,))
            bins = _shaped(tensors, f"{name}.bins", (int(offsets[-1]),))
            if offsets[0] != 0 or (np.diff(offsets) < 0).any() or (bins < 0).any():
                raise ValueError(f"{name} has impossible offsets or bins")
            fields[name] = BinnedRows(
                offsets, bins, _shaped(tensors, f"{name}.moments", (bins.size, *weights, MOMENTS))
            )
    return Statistics(
        process=process,
        dims=float(fields["predicted"].mean()) if counted else int(metadata["dims"]),
        data_range=data_range,
        seed=int(metadata["seed"]),
        model=metadata["model"],
        data=data,
        version=metadata["version"],
        behaviour=Behaviour.from_dict(metadata["behaviour"]) if "behaviour" in metadata else None,
        **fields,
    )


def _shaped(tensors: Arrays, name: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if tensors[name].shape != shape:
        raise ValueError(f"{name} has shape {tensors[name].shape}, not {shape}")
    return tensors[name]
