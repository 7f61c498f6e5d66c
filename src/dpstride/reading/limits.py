"""Stage 0. The limit on unpacked data, and the error that every reader raises.

Memory is bounded by the size of the file: it may unpack to 100 times its own size, and a small one to 1 GiB. Plain arrays
and tensors are as large as their files, so no data set is too large, only too strongly compressed.
"""

from __future__ import annotations

import os

from .text import one_line

UNPACKED_BYTES = 2**30
UNPACKED_RATIO = 100


class UnreadableFileError(ValueError):
    """A file that is damaged, of the wrong kind, or not safe to read; the message names it.

    The message is one line, whatever the name of the file.
    """

    def __str__(self) -> str:
        return one_line(super().__str__())


def check_unpacked(path: str | os.PathLike[str], unpacked: int, packed: int, remedy: str) -> None:
    """Raise if ``packed`` bytes of ``path`` would unpack to more than is allowed."""
    if unpacked > max(UNPACKED_BYTES, UNPACKED_RATIO * packed):
        raise UnreadableFileError(
            f"{path}: {packed:,} bytes would unpack to {unpacked:,}, more than {UNPACKED_RATIO} times as much and more than "
            f"{UNPACKED_BYTES:,}: a decompression bomb, or data that compresses too well. {remedy}"
        )
