"""Work distributed over the processes of a launch: Hugging Face accelerate on torch.distributed.

``torchrun … -m dpstride`` and ``accelerate launch … -m dpstride`` start the same program in every process; it calls
`join`, and from then on `map` gives units to free processes, on one machine or many, and brings every result to the main
process, which alone keeps and writes them. Units are claimed from a counter and results passed through the launch's own
key-value store, so that no process waits for another until all units are done, and every process sees a failure of any.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from .extras import require
from .identity import check_identity
from .launched import launch_size
from .serving import served
from .storage import Arrays, from_bytes, to_bytes

U = TypeVar("U")
PART = 1 << 22  # bytes; the store takes at most twice that in one value
PATIENCE = 60.0  # seconds that a failed worker stays, so that the main process can save finished work
_ERROR = "dpstride/error"


class WorkerError(RuntimeError):
    """Another process of the launch has failed."""


class Workers:
    """The processes of a launch, seen from one of them; a single one unless `join` was called in a launch of several."""

    def __init__(self, rank: int = 0, size: int = 1, device: str = "cpu", store: Any = None, group: Any = None) -> None:
        self.rank, self.size, self.device = rank, size, device
        self._store, self._group, self._calls = store, group, 0

    @property
    def main(self) -> bool:
        """Return whether this is the process that reads and writes results, and prints."""
        return self.rank == 0

    def share(self, value: Any) -> Any:
        """Return the main process's ``value`` (of JSON types) in every process; each must call this at the same place."""
        if self.size == 1:
            return value
        key = self._new_call()
        if self.main:
            self._store.set(key, json.dumps(value))
        while not self._store.check([key]):
            self._raise_error()
            time.sleep(0.05)
        return json.loads(bytes(self._store.get(key)))

    def agree(self, identity: dict[str, Any]) -> None:
        """Refuse work that is not that of the main process, see `dpstride.runs.identity.check_identity`."""
        main = self.share(identity)
        with self.telling():
            remedy = "Start every process with the same model, data and options."
            check_identity(f"Worker {self.rank}", identity, main, remedy)

    def share_arrays(self, arrays: Arrays | None) -> Arrays:
        """Return the main process's ``arrays`` in every process; the others pass None."""
        import numpy as np
        import torch
        from torch import distributed

        if self.size == 1:
            assert arrays is not None
            return arrays
        described = self.share(
            None if arrays is None else [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
        )
        found: Arrays = {}
        for name, dtype, shape in described:
            found[name] = np.empty(shape, dtype=dtype) if arrays is None else np.require(arrays[name], None, ["C", "W"])
            if found[name].size:
                content = torch.from_numpy(found[name].reshape(-1).view(np.uint8))
                distributed.broadcast(content, 0, group=self._group)
        self._wait_for_all()  # after this the main process may end, which closes its connections
        return found

    def map(
        self,
        compute: Callable[[U], Arrays],
        units: Sequence[U],
        at_once: int = 1,
        stop: Callable[[], None] = lambda: None,
        *,
        hands_over: bool = False,
    ) -> Iterator[tuple[U, Arrays]]:
        """Yield every unit with its result as it is finished, in the main process; the others compute and yield nothing.

        Every process must call this with the same units and iterate to the end. An error in one process is raised in all;
        in the main process after it has yielded every finished result. A single process computes ``at_once`` units at a
        time, each in its own thread; ``stop`` is called when these should end early. With ``hands_over`` every process has
        a few units in threads, and the thread that takes the results makes the network calls (`dpstride.runs.serving`).
        """
        if self.size == 1:
            yield from in_threads(compute, units, at_once, stop, hands_over=hands_over)
            return
        name = self._new_call()
        own: set[int] = set()
        claims = self._claims(name, len(units), own)
        if hands_over:
            computed = served(lambda index: compute(units[index]), claims, stop)
        else:
            computed = ((index, compute(units[index])) for index in claims)
        try:
            with contextlib.closing(computed):
                yield from self._lead(computed, units, name, own) if self.main else self._help(computed, name)
        except BaseException as error:
            self.fail(error)
            # A launcher ends all processes when one ends, which must wait until the main process has saved finished work.
            if not self.main and not isinstance(error, WorkerError):
                self._wait_for_main(name)
            raise
        finally:
            if self.main:
                with contextlib.suppress(RuntimeError):
                    self._store.set(f"{name}/stopped", b"")
        self._raise_error()

    def _lead(
        self, computed: Iterator[tuple[int, Arrays]], units: Sequence[U], name: str, own: set[int]
    ) -> Iterator[tuple[U, Arrays]]:
        elsewhere: dict[int, None] = {}  # units claimed by others, in that order
        seen = done = 0
        while done < len(units):
            mine = next(computed, None)
            if mine is not None:
                yield units[mine[0]], mine[1]
                done += 1
            claimed = min(len(units), self._store.add(f"{name}/next", 0))
            elsewhere |= dict.fromkeys(index for index in range(seen, claimed) if index not in own)
            seen = claimed
            finished = [index for index in elsewhere if self._store.check([f"{name}/{index}"])]
            for index in finished:
                del elsewhere[index]
                yield units[index], self._receive(f"{name}/{index}")
                done += 1
            if not finished:
                self._raise_error()
            if mine is None and not finished:
                time.sleep(0.02)

    def _help(self, computed: Iterator[tuple[int, Arrays]], name: str) -> Iterator[tuple[Any, Arrays]]:
        for index, arrays in computed:
            self._send(f"{name}/{index}", arrays)
        yield from ()

    def _claims(self, name: str, count: int, own: set[int]) -> Iterator[int]:
        """Claim units one by one, on demand, and add them to ``own``."""
        while (mine := self._claim(name, count)) is not None:
            own.add(mine)
            yield mine

    def _claim(self, name: str, count: int) -> int | None:
        if self._store.check([_ERROR]):
            return None
        index = int(self._store.add(f"{name}/next", 1)) - 1
        return index if index < count else None

    def _send(self, key: str, arrays: Arrays) -> None:
        content = to_bytes(arrays)
        parts = [content[place : place + PART] for place in range(0, len(content), PART)]
        for number, part in enumerate(parts):
            self._store.set(f"{key}/{number}", part)
        self._store.set(key, str(len(parts)))

    def _receive(self, key: str) -> Arrays:
        parts = [f"{key}/{number}" for number in range(int(self._store.get(key)))]
        arrays = from_bytes(b"".join(bytes(self._store.get(part)) for part in parts))
        for used in (key, *parts):
            self._store.delete_key(used)
        return arrays

    def fail(self, error: BaseException) -> None:
        """Report an error to the others, which ends their common work."""
        if self.size == 1 or isinstance(error, WorkerError):
            return
        with contextlib.suppress(RuntimeError):  # the store itself may be what failed
            text = {"rank": self.rank, "type": type(error).__name__, "text": str(error)}
            self._store.set(_ERROR, json.dumps(text))

    @contextlib.contextmanager
    def telling(self) -> Iterator[None]:
        """Report an error in the block to the others, and raise it again."""
        try:
            yield
        except BaseException as error:
            self.fail(error)
            raise

    def _raise_error(self) -> None:
        if self._store.check([_ERROR]):
            found = json.loads(bytes(self._store.get(_ERROR)))
            raise WorkerError(f"Worker {found['rank']}: {found['text'] or found['type']}")

    def _wait_for_all(self) -> None:
        key = self._new_call()
        self._store.add(key, 1)
        while self.main and self._store.add(key, 0) < self.size:
            self._raise_error()
            time.sleep(0.01)

    def _wait_for_main(self, name: str) -> None:
        until = time.monotonic() + PATIENCE
        with contextlib.suppress(RuntimeError):
            while not self._store.check([f"{name}/stopped"]) and time.monotonic() < until:
                time.sleep(0.05)

    def _new_call(self) -> str:
        self._calls += 1
        return f"dpstride/{self._calls}"


def in_threads(
    compute: Callable[[U], Arrays],
    units: Sequence[U],
    at_once: int,
    stop: Callable[[], None] = lambda: None,
    *,
    hands_over: bool = False,
) -> Iterator[tuple[U, Arrays]]:
    """Yield units with their results as they are finished.

    Threads that each run whole batches need not wait for each other in every operation, as torch's own threads do: two are
    nearly twice as fast as one, and hardly slower when something else runs.
    """
    if hands_over:
        yield from served(compute, units, stop)
    elif at_once > 1 and len(units) > 1:
        yield from served(compute, units, stop, at_once=at_once, hands_over=False)
    else:
        for unit in units:
            yield unit, compute(unit)


_joined = Workers()


def current() -> Workers:
    """Return the workers of this process: a single one until `join`."""
    return _joined


def join() -> Workers:
    """Join the other processes of ``torchrun`` or ``accelerate launch``, if any; `current` then returns all of them."""
    global _joined
    if launch_size() > 1 and _joined.size == 1:
        accelerate = require("accelerate", "Several processes need Hugging Face accelerate", "workers", ImportError)
        import torch
        from torch import distributed
        from torch.distributed.distributed_c10d import _get_default_store

        # accelerate uses CPUs only when told to.
        state = accelerate.PartialState(cpu=not (torch.cuda.is_available() or torch.xpu.is_available()))
        # Results are in main memory, whatever backend the devices use.
        group = None if distributed.get_backend() == "gloo" else distributed.new_group(backend="gloo")
        _joined = Workers(
            state.process_index, state.num_processes, str(state.device), _get_default_store(), group=group
        )
        assert _joined.size == launch_size()
        distributed.barrier(group)  # no process ends before all are connected
        atexit.register(_leave)
    return _joined


def _leave() -> None:
    from torch import distributed

    if distributed.is_initialized():
        distributed.destroy_process_group()
