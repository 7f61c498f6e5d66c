"""Stage 2. Which network this is: a digest of the weights, code and values that a callable consists of."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Iterator, Mapping
from types import CodeType
from typing import Any

import numpy as np
import torch
from torch import Tensor


def parts_of(network: Any, depth: int = 4) -> Iterator[Any]:
    """Modules, tensors, arrays, code and plain values that a callable consists of, closures and attributes included."""
    if isinstance(network, (torch.nn.Module, Tensor, np.ndarray, int, float, complex, str, bytes)):
        yield network
        return
    inside: tuple[Any, ...] = ()
    if isinstance(network, functools.partial):
        inside = (network.func, *network.args, *network.keywords.values())
    elif inspect.ismethod(network):
        inside = (network.__self__, network.__func__)
    elif inspect.isfunction(network):
        yield _code_of(network.__code__)
        used = inspect.getclosurevars(network)
        defaults = (*(network.__defaults__ or ()), *(network.__kwdefaults__ or {}).values())
        inside = (*used.nonlocals.values(), *used.globals.values(), *defaults)
    elif isinstance(network, Mapping):
        inside = tuple(network.values())
    elif isinstance(network, (list, tuple)):
        inside = tuple(network)
    elif hasattr(network, "__dict__") and not inspect.isclass(network) and not inspect.ismodule(network):
        inside = tuple(vars(network).values())
    if depth > 0:
        for part in inside:
            yield from parts_of(part, depth - 1)


def _code_of(code: CodeType) -> str:
    """What a function does, without where it stands in its file."""
    constants = [
        _code_of(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts if not isinstance(c, frozenset)
    ]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def digest_of(network: Any) -> str:
    """Digest of the network as it is now; reads every weight."""
    digest = hashlib.sha256(name_of(network).encode())
    for part in parts_of(network):
        if isinstance(part, torch.nn.Module):
            for key, value in part.state_dict().items():
                digest.update(key.encode())
                if isinstance(value, Tensor):
                    digest.update(_bytes_of(value))
        elif isinstance(part, Tensor):
            digest.update(_bytes_of(part))
        elif isinstance(part, np.ndarray):
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part).encode())
    return digest.hexdigest()[:16]


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def name_of(function: object) -> str:
    """What to call it."""
    if isinstance(function, functools.partial):
        return name_of(function.func)
    return str(getattr(function, "__qualname__", type(function).__qualname__))
