"""Stage 2. The weights of a network: the modules, tensors and arrays that a callable holds, and a digest of them.

Only what can be read for certain is looked for. Code, plain values and everything else that decides an output show in what
the network does, which `statistics.probes` records.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

Part = torch.nn.Module | Tensor | npt.NDArray[Any]


def parts_of(network: Any, depth: int = 6) -> Iterator[Part]:
    """Modules, tensors and arrays that a callable holds, each once, those in closures and attributes included."""
    yield from _parts(network, depth, set())


def _parts(held: Any, depth: int, seen: set[int]) -> Iterator[Part]:
    if id(held) in seen:
        return
    seen.add(id(held))
    if isinstance(held, (torch.nn.Module, Tensor, np.ndarray)):
        yield held
    elif depth > 0:
        for part in _inside(held):
            yield from _parts(part, depth - 1, seen)


def _inside(held: Any) -> tuple[Any, ...]:
    if isinstance(held, functools.partial):
        return (held.func, *held.args, *held.keywords.values())
    if inspect.ismethod(held):
        return (held.__self__, held.__func__)
    if inspect.isfunction(held):
        used = inspect.getclosurevars(held)
        defaults = (*(held.__defaults__ or ()), *(held.__kwdefaults__ or {}).values())
        return (*used.nonlocals.values(), *used.globals.values(), *defaults)
    if isinstance(held, Mapping):
        return tuple(held.values())
    if isinstance(held, (list, tuple)):
        return tuple(held)
    if inspect.isclass(held) or inspect.ismodule(held):
        return ()
    slots = (name for kind in type(held).__mro__ for name in _slots_of(kind))
    return (*getattr(held, "__dict__", {}).values(), *(getattr(held, name, None) for name in slots))


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def digest_of(network: Any) -> str:
    """Digest of the weights as they are now: parameters, buffers (persistent or not), and plain tensors and arrays."""
    digest = hashlib.sha256()
    for part in parts_of(network):
        named: Mapping[str, Any] = {"": part}
        if isinstance(part, torch.nn.Module):
            named = part.state_dict() | dict(part.named_buffers())
        for name, value in named.items():
            if isinstance(value, np.ndarray) or (isinstance(value, Tensor) and not is_lazy(value)):
                digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
                digest.update(_bytes_of(value))
    return digest.hexdigest()[:16]


def _bytes_of(value: Tensor | npt.NDArray[Any]) -> bytes:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).tobytes()
    if value.layout != torch.strided:
        value = value.to_dense()
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def name_of(function: object) -> str:
    """What to call it."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return str(getattr(function, "__qualname__", type(function).__qualname__))
