"""Text to train on: one row of characters, every tenth part of it held out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpstride.zoo.characters import encode

Ids = npt.NDArray[np.uint8]
PART = 10_000  # characters; of ten such parts the last is held out


def split_text(text: str, length: int) -> tuple[Ids, Ids]:
    """Characters to train on and characters held out, as token ids."""
    ids = encode(text).astype(np.uint8)
    part = min(PART, len(ids) // 10)
    if part < length:
        raise ValueError(
            f"The text has {len(ids):,} characters, of which a tenth is held out, but a passage has {length}. Give more text."
        )
    held_out = np.arange(len(ids)) // part % 10 == 9
    return ids[~held_out], ids[held_out]
