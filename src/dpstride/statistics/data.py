"""Stage 3. The user's data → samples on a known lattice, stored compactly and read in batches.

Discretised data is stored as level numbers, so float images that came from 8 bits are exact again; continuous data is
stored unchanged. Conditioning travels with its sample.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..given import Given
from ..runs.numbers import whole_number
from .artefact import DataRange
from .axes import warn_about_one_image

# Largest distance of a float from its level, in steps: float16 images scaled in float16 reach 2 · 2⁻¹² · 255/2 = 0.062.
ON_LATTICE = 0.1
AS_GIVEN = 1e-3  # largest distance of a given element from the value that the model gets: float16 has three digits
LOOK = 64  # samples among which different conditioning is looked for
# Types that support the arithmetic needed here; float8, complex and quantised ones do not.
TENSOR_TYPES = frozenset(
    {
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool),
        *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64),
    }
)


@dataclass(frozen=True)
class Batch:
    """Samples ``x`` [B, *shape] in float64, masks of edge levels, the conditioning, and the mask of elements that count."""

    x: Tensor
    low_edge: Tensor | None
    edge: Tensor | None
    conditioning: Any
    mask: Tensor | None = None

    def counted(self, values: Tensor) -> Tensor:
        """``values`` [B, *shape] of elements that count, with 0 for those that the model is given."""
        return values if self.mask is None else values.where(self.mask, 0.0)


@dataclass(frozen=True)
class Samples:
    """A data set in memory: level numbers or continuous values [N, *shape], with conditioning.

    ``mask`` [N, *shape] is True where the model predicts, and None where it predicts everything.
    """

    values: Tensor
    data_range: DataRange
    conditioning: Any = None
    mask: Tensor | None = None

    @classmethod
    def read(
        cls, data: Any, samples: int | None = None, data_range: object = "uint8", given: Given | None = None
    ) -> Samples:
        """Check and gather ``data``: a tensor or array, a pair (tensor, conditioning), a Dataset, or batches.

        ``given`` names the mask of a model that predicts only some elements.
        """
        parsed = DataRange.parse(data_range)
        if samples is not None:
            whole_number(samples, "samples must be a whole number of at least 1, or None for all")
        if isinstance(data, Samples):
            if data_range != "uint8" and parsed != data.data_range:
                raise ValueError(f"This data was read as {data.data_range.describe()}, not {parsed.describe()}.")
            chosen: Samples = data if samples is None else data.take(range(_check_samples(samples, len(data.values))))
            return chosen._masked(given)
        x, conditioning = _gather(data, samples)
        if x.ndim < 2:
            raise ValueError(f"data must have shape [samples, *sample shape], not {tuple(x.shape)}. Add a dimension.")
        if x.shape[0] == 0 or x[0].numel() == 0:
            raise ValueError(f"data is empty: shape {tuple(x.shape)}. Give at least one sample.")
        warn_about_one_image(tuple(x.shape), parsed.levels is not None)
        count = _check_samples(samples, x.shape[0])
        conditioning = slice_conditioning(conditioning, slice(0, count))
        return cls(_to_values(x[:count], parsed), parsed, conditioning)._masked(given)

    def _masked(self, given: Given | None) -> Samples:
        """The same samples with that model's mask; a mask of ones becomes None."""
        if given is None:
            return self if self.mask is None else replace(self, mask=None)
        shape = tuple(self.values.shape)
        mask, observed = given.entries(self.conditioning, shape)
        if not bool((predicted := mask.flatten(1).any(1)).all()):
            raise ValueError(
                f"The mask {given.mask!r} of sample {int((~predicted).int().argmax())} is 0 everywhere, so that nothing of "
                "it is predicted. Leave such samples out; the mask is 1 where the model predicts."
            )
        for first in range(0, len(self), 256):
            part = slice(first, first + 256)
            x = self.batch(first, first + 256, torch.device("cpu"), torch.float64).x
            equal = (x - observed[part].double()).abs() <= AS_GIVEN * x.abs().clamp(min=1.0)
            if not bool((mask[part] | equal).all()):
                raise ValueError(
                    f"Sample {first + int((~(mask[part] | equal)).flatten(1).any(1).int().argmax())} and the values "
                    f"{given.observed!r} that the model is given differ where the mask {given.mask!r} is 0. The mask is 1 "
                    "where the model predicts (some code has it the other way round); values are on the scale of x."
                )
        return replace(self, mask=None if bool(mask.all()) else mask)

    def __len__(self) -> int:
        return self.values.shape[0]

    @property
    def shape(self) -> tuple[int, ...]:
        """One sample's shape."""
        return tuple(self.values.shape[1:])

    @property
    def counted_values(self) -> Tensor:
        """``values``, or only those that count."""
        return self.values if self.mask is None else self.values[self.mask]

    @property
    def predicted(self) -> npt.NDArray[np.float64] | None:
        """Number of elements of each sample that the model predicts; None where it predicts all."""
        return None if self.mask is None else self.mask.flatten(1).sum(1).double().numpy()

    @property
    def dims(self) -> float:
        """Number of elements of a sample that count, the mean over samples."""
        return math.prod(self.shape) if self.predicted is None else float(self.predicted.mean())

    def take(self, indices: Iterable[int]) -> Samples:
        """The samples at ``indices``, with their conditioning."""
        chosen = list(indices)
        mask = None if self.mask is None else self.mask[chosen]
        return Samples(self.values[chosen], self.data_range, slice_conditioning(self.conditioning, chosen), mask)

    def varied(self, count: int) -> list[int]:
        """Indices of ``count`` samples spread over all, with different conditioning if a few dozen samples show any."""
        spread: list[int] = np.linspace(0, len(self) - 1, count).round().astype(int).tolist()
        if self.conditioning is None:
            return spread
        kinds: dict[bytes, int] = {}
        for number in np.linspace(0, len(self) - 1, min(len(self), LOOK)).round().astype(int).tolist():
            digest = hashlib.sha256()
            update_digest(digest, slice_conditioning(self.conditioning, [number]))
            kinds.setdefault(digest.digest(), number)
        return [*kinds.values(), *spread][:count]

    def batch(self, first: int, last: int, device: torch.device, dtype: torch.dtype) -> Batch:
        """Samples first … last − 1 on ``device``."""
        values = self.values[first:last].to(device)
        conditioning = slice_conditioning(self.conditioning, slice(first, last))
        mask = None if self.mask is None else self.mask[first:last].to(device)
        if self.data_range.levels is None:
            return Batch(values.to(dtype), None, None, conditioning, mask=mask)
        low_edge, high_edge = values == 0, values == self.data_range.levels - 1
        x = self.data_range.low + values.to(dtype) * self.data_range.step
        return Batch(x, low_edge, low_edge | high_edge, conditioning, mask=mask)

    @property
    def fingerprint(self) -> str:
        """Digest of values, shape, range and conditioning."""
        digest = hashlib.sha256(f"{tuple(self.values.shape)} {self.data_range.describe()}".encode())
        digest.update(self.values.contiguous().numpy().tobytes())
        update_digest(digest, self.conditioning)
        return digest.hexdigest()[:16]


def _check_samples(samples: int | None, available: int) -> int:
    if samples is not None and samples > available:
        raise ValueError(f"samples = {samples}, but the data has only {available}. Give more data or ask for fewer.")
    return available if samples is None else samples


def _gather(data: Any, limit: int | None) -> tuple[Tensor, Any]:
    """All of ``data`` (or its first ``limit`` samples) as one tensor, and the conditioning that came with it."""
    if isinstance(data, (Tensor, np.ndarray)):
        return _tensor(data), None
    if isinstance(data, tuple) and len(data) == 2 and isinstance(data[0], (Tensor, np.ndarray)):
        x, conditioning = _tensor(data[0]), data[1]
        check_conditioning(conditioning, x.shape[0])
        return x, tensors_in_conditioning(conditioning)
    if isinstance(data, (str, bytes)) or (not isinstance(data, Iterable) and not hasattr(data, "__getitem__")):
        raise ValueError(
            f"data must be a tensor, an array, a Dataset or an iterable of batches, not {type(data).__name__}. "
            "Files and folders are read with dpstride.read_data."
        )
    if not isinstance(data, (list, tuple)) and hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        count = len(data) if limit is None else min(limit, len(data))
        parts = [_add_batch_axis(data[i]) for i in range(count)]
    else:
        parts, gathered = [], 0
        for item in data:
            parts.append(_pair(item))
            gathered += parts[-1][0].shape[0]
            if limit is not None and gathered >= limit:
                break
    if not parts:
        raise ValueError("data is empty. Give at least one sample; a generator can be read only once.")
    if len({tuple(x.shape[1:]) for x, _ in parts}) > 1:
        raise ValueError(
            f"All samples must have one shape, but found {sorted({tuple(x.shape[1:]) for x, _ in parts})}."
        )
    return torch.cat([x for x, _ in parts]), _concatenate([conditioning for _, conditioning in parts])


def _pair(item: Any) -> tuple[Tensor, Any]:
    if isinstance(item, (tuple, list)) and len(item) == 1:  # what a DataLoader makes of a TensorDataset
        return _tensor(item[0]), None
    if isinstance(item, (tuple, list)) and len(item) == 2:
        x = _tensor(item[0])
        check_conditioning(item[1], x.shape[0])
        return x, tensors_in_conditioning(item[1])
    return _tensor(item), None


def _add_batch_axis(item: Any) -> tuple[Tensor, Any]:
    if isinstance(item, (tuple, list)) and len(item) in (1, 2) and isinstance(item[0], (Tensor, np.ndarray)):
        conditioning = None if len(item) == 1 else item[1]
        return _tensor(item[0])[None], _map(conditioning, _as_batch_of_one)
    return _tensor(item)[None], None


def _as_batch_of_one(value: Any) -> Any:
    return torch.as_tensor(value)[None] if isinstance(value, (Tensor, np.ndarray, np.number, int, float)) else [value]


def _tensor(value: Any) -> Tensor:
    if isinstance(value, Tensor) and value.layout == torch.strided and value.dtype in TENSOR_TYPES:
        tensor: Tensor = value.detach().cpu()
        # torch has no minimum of unsigned integers above 8 bits
        return tensor.to(torch.int64) if tensor.dtype in (torch.uint16, torch.uint32, torch.uint64) else tensor
    if isinstance(value, np.ndarray) and value.dtype.kind in "uifb" and value.dtype.itemsize <= 8:
        kind = value.dtype.newbyteorder("=") if value.dtype.kind != "u" or value.dtype.itemsize == 1 else np.int64
        # a copy where torch could not take the array itself: another byte order, negative strides, read-only
        return torch.from_numpy(np.require(value, dtype=kind, requirements=["C", "W"]))
    dtype = f" of dtype {value.dtype}" if isinstance(value, (Tensor, np.ndarray)) else ""
    raise ValueError(
        f"data must be made of tensors or numeric arrays, not {type(value).__name__}{dtype}. A pair (x, conditioning) is "
        "a tuple."
    )


def _to_values(x: Tensor, data_range: DataRange) -> Tensor:
    """Level numbers of discretised data, float64 values of continuous data; everything else is refused."""
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise ValueError(
            f"data must be finite, but sample {int((~torch.isfinite(x)).flatten(1).any(1).int().argmax())}"
            " holds NaN or infinity. Remove it."
        )
    if data_range.levels is None:
        if not x.is_floating_point():
            raise ValueError(
                f"data_range='continuous' needs floating-point data, not {x.dtype}. Convert it, or pass "
                "data_range='uint8' for 8-bit images."
            )
        return x.double()
    levels, low, high = data_range.levels, data_range.low, data_range.high
    storage = torch.uint8 if levels <= 256 else torch.int32
    if not x.is_floating_point():
        if x.dtype == torch.bool or (data_range.describe() == "uint8" and x.dtype != torch.uint8):
            raise ValueError(
                f"data_range={data_range.describe()!r} takes uint8 data (0 to 255) or floats in "
                f"[{low:g}, {high:g}], not {x.dtype}. Convert it with .to(torch.uint8)."
            )
        least, most = int(x.min()), int(x.max())
        if least < 0 or most > levels - 1:
            raise ValueError(f"Level numbers must lie in 0 … {levels - 1}, but the data spans {least} … {most}.")
        return x.to(storage)
    least_value, most_value = float(x.min()), float(x.max())
    slack = ON_LATTICE * data_range.step
    if least_value < low - slack or most_value > high + slack:
        raise ValueError(
            f"data_range={data_range.describe()!r} means values in [{low:g}, {high:g}], but the data spans "
            f"[{least_value:g}, {most_value:g}]. Scale it (8-bit images: x / 127.5 - 1), or pass "
            "data_range='continuous' (--data-range continuous)."
        )
    position = (x.double() - low) / data_range.step
    level = position.round()
    if (off := float((position - level).abs().max())) > ON_LATTICE:
        hint = " Values in [0, 1] need 2 x - 1." if least_value >= 0.0 else ""
        raise ValueError(
            f"data_range={data_range.describe()!r} means {levels} levels from {low:g} to {high:g}, but a value is "
            f"{off:.3f} of a step off its level.{hint} Resized or augmented images lose their levels: round them to 8 "
            "bits again, or pass data_range='continuous' (--data-range continuous)."
        )
    return level.to(storage)


def _map(value: Any, function: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _map(inner, function) for key, inner in value.items()}
    return None if value is None else function(value)


def tensors_in_conditioning(conditioning: Any) -> Any:
    """Arrays in the conditioning as tensors; everything else unchanged."""

    def convert(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        return _tensor(value) if value.dtype.kind in "uifb" else list(value)

    return _map(conditioning, convert)


def slice_conditioning(conditioning: Any, chosen: slice | list[int]) -> Any:
    """The conditioning of the chosen samples, of whatever type."""

    def part(value: Any) -> Any:
        if isinstance(value, (Tensor, np.ndarray)) or isinstance(chosen, slice):
            return value[chosen]
        return [value[i] for i in chosen]

    return _map(conditioning, part)


def _concatenate(parts: list[Any]) -> Any:
    first = parts[0]
    if any(_layout(part) != _layout(first) for part in parts):
        raise ValueError(
            "Conditioning must have the same keys in every batch, but some batches lack it or some of its keys."
        )
    if isinstance(first, Mapping):
        return {key: _concatenate([part[key] for part in parts]) for key in first}
    if first is None:
        return None
    if isinstance(first, Tensor):
        return torch.cat(parts)
    return [item for part in parts for item in part]


def check_conditioning(conditioning: Any, count: int) -> None:
    """Raise unless there is one entry per sample."""

    def check(value: Any) -> None:
        single = not hasattr(value, "__len__") or (isinstance(value, (Tensor, np.ndarray)) and value.ndim == 0)
        if single or len(value) != count:
            found = "a single value" if single else f"{len(value)} entries"
            raise ValueError(f"Conditioning must have one entry per sample: {count} samples, but {found}.")

    _map(conditioning, check)


def _layout(conditioning: Any) -> Any:
    return (
        {key: _layout(inner) for key, inner in conditioning.items()}
        if isinstance(conditioning, Mapping)
        else (conditioning is None)
    )


def update_digest(digest: Any, conditioning: Any) -> None:
    """Add the conditioning to a digest of data, each value with its type and size, so that no two coincide."""
    match conditioning:
        case Mapping():
            digest.update(f"dict {len(conditioning)}".encode())
            for key, inner in conditioning.items():
                digest.update(f"{key!r}:".encode())
                update_digest(digest, inner)
        case list() | tuple():
            digest.update(f"list {len(conditioning)}".encode())
            for inner in conditioning:
                update_digest(digest, inner)
        case Tensor():
            digest.update(f"{conditioning.dtype} {tuple(conditioning.shape)}".encode())
            digest.update(conditioning.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        case np.ndarray() if conditioning.dtype.kind in "biufc":
            digest.update(f"{conditioning.dtype} {conditioning.shape}".encode())
            digest.update(conditioning.tobytes())
        case _ if not any("__repr__" in vars(kind) for kind in type(conditioning).__mro__[:-1]):
            # Its repr would hold its address in memory.
            digest.update(type(conditioning).__qualname__.encode())
            update_digest(digest, getattr(conditioning, "__dict__", None))
        case _:
            digest.update(f"{type(conditioning).__qualname__} {conditioning!r}".encode())
