"""Stage 2. The weights of a network: the modules, tensors and arrays that a callable holds, and a digest of them.

Only parts that can be read reliably are included. Code, plain values and everything else that affects an output show in
the network's behaviour, which `statistics.probes` records.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.parameter import is_lazy

Part = torch.nn.Module | Tensor | npt.NDArray[Any]


def parts_of(network: Any, depth: int = 6) -> Iterator[Part]:
    """Modules, tensors and arrays that a callable holds, each once, including those in closures and attributes."""
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
        defaults = (*(held.__defaults__ or ()), *(held.__kwdefaults__ or {}).values())
        try:
            used = inspect.getclosurevars(held)
        except ValueError:  # it uses a name of the enclosing function that has no value yet
            return defaults
        return (*_sorted(used.nonlocals), *_sorted(used.globals), *defaults)
    if isinstance(held, Mapping):
        return tuple(held.values())
    if isinstance(held, (list, tuple)):
        return tuple(held)
    if inspect.isclass(held) or inspect.ismodule(held):
        return ()
    slots = (name for kind in type(held).__mro__ for name in _slots_of(kind))
    return (*getattr(held, "__dict__", {}).values(), *(getattr(held, name, None) for name in slots))


def _sorted(named: Mapping[str, Any]) -> list[Any]:
    return [named[name] for name in sorted(named)]


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def plain_parts(network: Any) -> tuple[Tensor | npt.NDArray[Any], ...]:
    """The tensors and arrays that a callable currently holds outside state dictionaries.

    Call this before the network runs: networks keep tables, caches and their last input next to their weights.
    """
    found: list[Tensor | npt.NDArray[Any]] = []
    for part in parts_of(network):
        if isinstance(part, torch.nn.Module):
            kept = part.state_dict()
            found += [buffer for name, buffer in part.named_buffers() if name not in kept]
        else:
            found.append(part)
    return tuple(found)


def digest_of(network: Any, plain: Sequence[Tensor | npt.NDArray[Any]]) -> str:
    """Digest of the current weights: state dictionaries of the modules in ``network``, and the ``plain`` parts.

    Names are not included, since wrappers change them.
    """
    modules = [part for part in parts_of(network) if isinstance(part, torch.nn.Module)]
    digest = hashlib.sha256()
    for value in (*(value for module in modules for value in module.state_dict().values()), *plain):
        numbers = value.dtype.kind in "biufc" if isinstance(value, np.ndarray) else isinstance(value, Tensor)
        if numbers and not is_lazy(value):
            digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
            digest.update(_bytes_of(value))
    return digest.hexdigest()[:16]


def _bytes_of(value: Tensor | npt.NDArray[Any]) -> bytes:
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).tobytes()
    if value.layout != torch.strided:
        value = value.to_dense()
    return value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def name_of(function: object) -> str:
    """Name of a callable in messages."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return str(getattr(function, "__qualname__", type(function).__qualname__))
