"""Number of processes of a launch, as torchrun and accelerate set it in the environment."""

from __future__ import annotations

import os


def launch_size() -> int:
    """Return the number of processes of the launch that this one belongs to; 1 outside of a launch."""
    size = _whole("WORLD_SIZE", "1", 1, 10**9)
    if size > 1:
        _whole("RANK", "0", 0, size - 1)
        _whole("LOCAL_RANK", "0", 0, size - 1)
        _whole("MASTER_PORT", "0", 0, 2**16 - 1)
    return size


def _whole(name: str, default: str, least: int, most: int) -> int:
    """Return a number in the environment; raise ValueError unless it is from ``least`` to ``most``."""
    found = os.environ.get(name, default)
    if not (found.isascii() and found.isdecimal() and len(found) < 10 and least <= int(found) <= most):
        raise ValueError(
            f"{name} must be a whole number from {least} to {most}, as torchrun and accelerate launch set it, not "
            f"{found!r:.80}. Unset it and WORLD_SIZE to run one process."
        )
    return int(found)
