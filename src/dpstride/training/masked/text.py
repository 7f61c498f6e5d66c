"""Text for training: one row of characters, of which every tenth part is held out."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpstride.zoo.characters import encode

Ids = npt.NDArray[np.uint8]
PART = 10_000  # characters; the last of ten such parts is held out


def split_text(text: str, length: int) -> tuple[Ids, Ids]:
    """Training and held-out characters, as token ids."""
    ids = encode(text).astype(np.uint8)
    part = min(PART, len(ids) // 10)
    if part < length:
        raise ValueError(
            f"The held-out tenth of the text must have at least one passage of {length} characters, but the whole text has "
            f"{len(ids):,}. Give more text."
        )
    held_out = np.arange(len(ids)) // part % 10 == 9
    return ids[~held_out], ids[held_out]
