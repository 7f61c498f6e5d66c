"""Number of processes of a launch, as torchrun and accelerate say it in the environment."""

from __future__ import annotations

import os


def launch_size() -> int:
    """The number of processes of the launch that this one belongs to; 1 outside of any."""
    found = os.environ.get("WORLD_SIZE", "1")
    if not (found.isascii() and found.isdecimal() and len(found) < 10 and int(found) >= 1):
        raise ValueError(
            f"WORLD_SIZE must be a number of processes, as torchrun and accelerate launch set it, not {found!r:.80}. Unset "
            "it to run one process."
        )
    return int(found)
