"""Stage 0. A file inside another one: its bytes, and a name for messages. Readers open it like a path."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from types import SimpleNamespace


@dataclass(frozen=True)
class HeldFile:
    """A file in memory."""

    name: str
    content: bytes = field(repr=False)

    def open(self, mode: str = "rb") -> io.BytesIO:
        """Return a stream of the bytes from the beginning."""
        assert mode == "rb"
        return io.BytesIO(self.content)

    def stat(self) -> SimpleNamespace:
        """Return the size, as st_size."""
        return SimpleNamespace(st_size=len(self.content))

    def __str__(self) -> str:
        return self.name
