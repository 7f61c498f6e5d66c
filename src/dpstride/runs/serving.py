"""Units of work in threads, which hand every network call over to the thread that started them.

While a network runs on an accelerator, the CPU would be idle. A few units at once, each in a thread, keep it busy: one
prepares its next batch and another processes its last output, while the network runs on a third. The network is only called
by the thread that started the work, one call at a time, since foreign code may not be thread-safe.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, TypeVar

U = TypeVar("U")
R = TypeVar("R")
AT_ONCE = 3  # units: one in the network, one ready for it, one being processed or prepared
_here = threading.local()  # .server: set in threads whose calls are handed over


@dataclass(frozen=True, eq=False)
class _Call:
    """A call that another thread waits for."""

    function: Callable[[], Any]
    result: Future[Any] = field(default_factory=Future)

    def make(self) -> None:
        """Make the call; an error that ends the program is raised here too, once the waiting thread is cancelled."""
        try:
            self.result.set_result(self.function())
        except Exception as error:
            self.result.set_exception(error)
        except BaseException:
            self.result.set_exception(CancelledError())
            raise


class _Server:
    """Calls and finished units, in the order in which they came."""

    def __init__(self) -> None:
        self.events: SimpleQueue[_Call | Future[Any]] = SimpleQueue()
        self._closed, self._lock = False, threading.Lock()

    def ask(self, function: Callable[[], R]) -> Callable[[], R]:
        """Let the serving thread make a call; return a function that waits for its result."""
        call = _Call(function)
        with self._lock:
            if self._closed:
                raise CancelledError
            self.events.put(call)
        return call.result.result

    def close(self) -> None:
        """Stop serving: calls that wait, or come from now on, are cancelled."""
        with self._lock:
            self._closed = True
        while not self.events.empty():
            event = self.events.get()
            if isinstance(event, _Call):
                event.result.set_exception(CancelledError())


def hand_over(function: Callable[[], R]) -> Callable[[], R]:
    """Start a call and return a function that waits for its result: in a thread of `served` the starting thread makes the
    call meanwhile, anywhere else it is made at once."""
    server: _Server | None = getattr(_here, "server", None)
    if server is None:
        result = function()
        return lambda: result
    return server.ask(function)


def served(
    compute: Callable[[U], R],
    units: Iterable[U],
    stop: Callable[[], None] = lambda: None,
    *,
    at_once: int = AT_ONCE,
    hands_over: bool = True,
) -> Generator[tuple[U, R], None, None]:
    """Yield units with their results as they are finished, ``at_once`` of them in threads whose calls this one makes.

    One more unit is submitted than there are threads, so that no thread waits for its next one. Unless ``hands_over``,
    threads make their calls themselves.

    No thread is left behind, whatever is raised in any thread and wherever the caller stops.
    """
    import torch

    server = _Server()
    running: dict[Future[R], U] = {}

    def begin() -> None:
        torch.set_num_threads(1)  # for each operation; torch keeps this setting per thread
        _here.server = server if hands_over else None

    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(at_once, thread_name_prefix="dpstride-units", initializer=begin) as pool:
            try:
                left = iter(units)
                while True:
                    for unit in itertools.islice(left, at_once + 1 - len(running)):
                        future = pool.submit(compute, unit)
                        running[future] = unit
                        future.add_done_callback(server.events.put)
                    if not running:
                        return
                    event = server.events.get()
                    if isinstance(event, _Call):
                        event.make()
                    else:
                        yield running.pop(event), event.result()
            except BaseException:
                stop()
                raise
            finally:
                for future in running:
                    future.cancel()
                server.close()
    finally:
        torch.set_num_threads(threads)
