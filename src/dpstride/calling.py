"""Stage 2. One call of a foreign network: it gets arguments that it may overwrite, and its output is checked.

A network may write into its arguments, switch gradients on, or return the same tensor every time; none of that may affect
the caller's data or another call.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from numbers import Real
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from .options import LEARNED_RANGE
from .process import ForwardProcess
from .runs.numbers import whole_number

TimeInput = Literal["index0", "time", "rescaled"] | Callable[[int], float]
PRECISIONS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


class NonFiniteError(ValueError):
    """The network returned NaN or infinity, for the samples at ``positions`` of the batch."""

    def __init__(self, message: str, positions: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.positions = list(positions)


def call(
    network: Callable[..., Any], x: Tensor, time: Tensor, conditioning: Any, autocast: torch.dtype | None = None
) -> Any:
    """Return ``network(x, time)``, or with a copy of the conditioning; x and time must not be in use elsewhere.

    Runs without gradients, but not in inference mode, which a network that computes gradients itself (an energy, guidance)
    cannot leave.
    """
    lower = nullcontext() if autocast is None else torch.autocast(x.device.type, autocast)
    with torch.no_grad(), lower:
        if conditioning is None:
            try:
                return network(x, time)
            except TypeError as error:
                if "positional argument" not in str(error):
                    raise
                raise ValueError(
                    f"The network cannot be called as network(x, time) ({error}). If the model is conditional, give "
                    "the conditioning with the data, as a pair (x, conditioning), and sample with conditioning= "
                    "(--conditioning); if it takes no time, wrap it: lambda x, time: network(x)."
                ) from error
        conditioning = copied(conditioning, x.device)
        try:
            if isinstance(conditioning, Mapping):
                return network(x, time, **conditioning)
            return network(x, time, conditioning)
        except TypeError as error:
            raise ValueError(
                f"The network did not accept the conditioning that came with the data ({error}). Drop it if the model "
                "is unconditional (a file with the data alone, or [x for x, _ in data]), or pass a dict of the "
                "network's own keywords; arrays in a file are passed under their own names."
            ) from error


def time_table(time_input: TimeInput, process: ForwardProcess) -> Tensor:
    """Times fed to the network at each grid index; index 0 is never used."""
    if callable(time_input):
        values = [0.0, *(time_input(int(i)) for i in process.origin[1:])]
        whole = all(isinstance(value, (int, np.integer)) for value in values[1:])
        return torch.tensor([float(v) for v in values], dtype=torch.float64).to(torch.int64 if whole else torch.float64)
    match time_input:
        case "index0":
            return torch.tensor(process.origin - 1, dtype=torch.int64)
        case "time":
            return torch.tensor(process.times, dtype=torch.float64)
        case "rescaled":
            return torch.tensor((process.origin - 1) * (1000.0 / process.origin_T), dtype=torch.float64)
        case _:
            raise ValueError(
                f"time_input must be 'index0', 'time', 'rescaled' or a callable of the grid index, not {time_input!r}."
            )


def checked(output: Any, shape: tuple[int, ...], variance: str) -> Tensor:
    """The output for x of ``shape``, without gradients; ValueError unless it is what such a model should return."""
    if not isinstance(output, Tensor):
        raise ValueError(
            f"network(x, time) must return a tensor, not {type(output).__name__}. Wrap it, for example "
            "lambda x, time: network(x, time).sample for a diffusers model."
        )
    if output.dtype not in PRECISIONS or output.layout != torch.strided or output.is_meta:
        names = ", ".join(str(each) for each in PRECISIONS)
        layout = "" if output.layout == torch.strided else f" in the layout {output.layout}"
        layout += " without any numbers in it (device meta)" if output.is_meta else ""
        raise ValueError(
            f"The network must return real numbers in a dense tensor of {names}, but it returned {output.dtype}{layout}. "
            "Wrap it so that it returns its prediction, for example lambda x, time: network(x, time).real for complex "
            "values, or .float() for integers."
        )
    doubled = (*shape[:1], *(2 * channels for channels in shape[1:2]), *shape[2:])
    expected, meant = shape, "the shape of x"
    if variance == LEARNED_RANGE:
        expected, meant = doubled, "twice the channels of x (prediction, then v)"
    if tuple(output.shape) != expected:
        hint = ""
        if tuple(output.shape) == doubled:
            hint = " Twice the channels look like a learned variance: variance='learned_range'."
        elif tuple(output.shape) == (shape[0], 1, *shape[1:]):
            hint = " Does it take samples with a channel axis? Then give data[:, None]."
        raise ValueError(
            f"With variance={variance!r} the network must return {meant}, {expected}, but it returned "
            f"{tuple(output.shape)}.{hint}"
        )
    return output.detach()


def sample_shape(shape: Any) -> tuple[int, ...]:
    """Return one sample's shape as a tuple; ValueError unless it is one."""
    rule = "shape must be the shape of one sample, without the batch, for example (3, 32, 32)"
    if not isinstance(shape, Iterable) or isinstance(shape, str):
        raise ValueError(f"{rule}, not {shape!r:.80}.")
    return tuple(whole_number(n, f"{rule}, of whole numbers") for n in shape)


def check_clip(clip: Any) -> None:
    """Raise unless ``clip`` is None or a range."""
    if clip is None:
        return
    pair = isinstance(clip, (tuple, list)) and len(clip) == 2 and all(isinstance(each, Real) for each in clip)
    if not pair or not clip[0] < clip[1]:
        raise ValueError(f"clip must be None or (low, high) with low < high, not {clip!r}.")


def missing_axis(found: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """A hint where samples of shape ``found`` lack only the first axis of ``wanted``: one sample, or no channel axis."""
    if found != wanted[1:]:
        return ""
    channel = ", data[:, None] for samples without their channel axis" if wanted[0] == 1 else ""
    return f"An axis is missing: data[None] for a single sample{channel}. "


def autocast_in_force(device: torch.device) -> torch.dtype | None:
    """The precision of the ``torch.autocast`` around the caller, or None."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a smaller batch may help; torch's allocators and numpy each raise a different error."""
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
        return True
    signs = ("out of memory", "can't allocate memory", "cannot allocate memory")
    return isinstance(error, RuntimeError) and any(sign in str(error).lower() for sign in signs)


def copied(value: Any, device: torch.device) -> Any:
    """A copy of the conditioning that the network may overwrite, with tensors on ``device``."""
    if isinstance(value, Tensor):
        return value.to(device, copy=True)
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, Mapping):
        return {key: copied(inner, device) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(copied(inner, device) for inner in value)
    try:
        return copy.deepcopy(value)
    except Exception:  # objects that cannot be copied (an open file) are shared
        return value
