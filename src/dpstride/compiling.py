"""Stage 2. A network compiled with torch.compile, for thousands of passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .fingerprint import parts_of
from .reading.text import first_line

OFTEN = 20  # calls with one shape before it is compiled; compiling takes as long as hundreds of calls


def compiled(network: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """``network`` as a callable that is compiled for every frequent shape of x; other shapes run uncompiled.

    Weights become constants. On a CPU, images are in channels-last layout, which is faster there, but only once compiled
    (elsewhere the compiler chooses the layout).
    """

    def run(x: Tensor, *others: Any, **keywords: Any) -> Any:
        return network(x, *others, **keywords)

    options: dict[str, str | int | bool | Callable[..., Any]] = {"freezing": True}
    compiled_run = torch.compile(run, dynamic=False, options=options)
    channels_last = device.type == "cpu"
    if channels_last:
        for part in parts_of(network):
            if isinstance(part, torch.nn.Module):
                part.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    calls: Counter[torch.Size] = Counter()

    def call(x: Tensor, *others: Any, **keywords: Any) -> Any:
        calls[x.shape] += 1
        if calls[x.shape] <= OFTEN:
            return network(x, *others, **keywords)
        if channels_last and x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        try:
            return compiled_run(x, *others, **keywords)
        except RuntimeError as error:
            if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
                raise ValueError(
                    f"torch.compile could not compile the network ({first_line(error, 300)}). It "
                    "needs a C++ compiler and code that it can trace; run without it (no --compile)."
                ) from error
            raise

    return call
