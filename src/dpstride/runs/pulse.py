"""A line every few seconds that names the work in progress and its duration, if no progress bar shows it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

from .workers import current

SECONDS = 9.0  # without output, after which a line is due


class Pulse:
    """Passes lines on to ``say``, and in its context adds lines on the work last named with `doing`.

    It adds none on a terminal with progress bars (``bars``), nor in worker processes of a launch.
    """

    def __init__(self, say: Callable[[str], None], bars: bool = True, seconds: float = SECONDS) -> None:
        self._say, self._seconds = say, seconds
        self._beats = current().main and not (bars and sys.stderr.isatty())
        self._what, self._since, self._last = "", time.monotonic(), time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def say(self, text: str) -> None:
        """Print a line now."""
        self._last = time.monotonic()
        self._say(text)

    def doing(self, what: str) -> None:
        """Name the work that starts now."""
        self._what, self._since = what, time.monotonic()

    def __enter__(self) -> Pulse:
        if self._beats:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._beats:
            self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(max(self._last + self._seconds - time.monotonic(), 0.01)):
            if self._what and time.monotonic() >= self._last + self._seconds:
                self.say(f"{self._what}: {time.monotonic() - self._since:.0f} s so far")
