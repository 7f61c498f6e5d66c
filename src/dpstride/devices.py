"""Stage 2. The device of a network: one that cannot be used on this machine is refused before anything is moved to it."""

from __future__ import annotations

import torch

from .reading.text import first_line


def usable_device(device: str | torch.device) -> torch.device:
    """Return the device of that name; ValueError if torch does not know it or cannot use it on this machine."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must name a torch device, such as 'cpu', 'cuda', 'cuda:1' or 'mps', not {device!r:.80}."
        ) from error
    try:
        torch.empty(0, device=found)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        remedy = "Use device='cpu', or leave device out."
        if found.type == "cuda" and not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
            reason, remedy = (
                f"this PyTorch, {torch.__version__}, was built without CUDA",
                f"Install one with it (pytorch.org/get-started). {remedy}",
            )
        elif found.type == "cuda" and not torch.cuda.is_available():
            reason = "PyTorch finds no GPU; see what nvidia-smi says"
        else:
            reason = first_line(error).rstrip(".")
        raise ValueError(f"device={str(device)!r} cannot be used here: {reason}. {remedy}") from error
    return found
