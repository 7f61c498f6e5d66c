"""Units of work in threads of their own, which hand every network call over to the thread that started them.

While a network runs on an accelerator, the processor would only wait. A few units at once, each in a thread, keep it busy:
one makes its next batch and another gathers what its last one gave, while the network has a third. The network is only ever
called by the thread that asked for the work, one call at a time, since foreign code need not bear threads.
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
AT_ONCE = 3  # units: one in the network, one ready for it, one that is gathered or made
_here = threading.local()  # .server: of threads whose calls are handed over


@dataclass(frozen=True, eq=False)
class _Call:
    """A call that another thread waits for."""

    function: Callable[[], Any]
    result: Future[Any] = field(default_factory=Future)

    def make(self) -> None:
        """Make the call; what ends the program is raised here too, once the waiting thread knows that nothing will come."""
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
        """Have a call made by the serving thread; what is returned waits for its result."""
        call = _Call(function)
        with self._lock:
            if self._closed:
                raise CancelledError
            self.events.put(call)
        return call.result.result

    def close(self) -> None:
        """Serve no more: whoever waits, or asks from now on, is told so."""
        with self._lock:
            self._closed = True
        while not self.events.empty():
            event = self.events.get()
            if isinstance(event, _Call):
                event.result.set_exception(CancelledError())


def hand_over(function: Callable[[], R]) -> Callable[[], R]:
    """Start a call and return what waits for its result: in a thread of `served` its starter makes the call meanwhile,
    anywhere else it is made at once."""
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
    """Units with their results as they are finished, ``at_once`` of them in threads whose calls are made by this one.

    One more is asked for than there are threads, so that none of them waits for its next one. Unless ``hands_over``, threads
    make their calls themselves.

    Whatever is raised, here or there, and wherever the caller leaves off, no thread is left behind.
    """
    import torch

    server = _Server()
    running: dict[Future[R], U] = {}

    def begin() -> None:
        torch.set_num_threads(1)  # of each operation; torch keeps that number per thread
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
