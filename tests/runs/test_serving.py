"""Where the processor only waits for the network, batches are made and gathered meanwhile: the same bits, and no thread left.

The network runs on the processor here; that it counts as an accelerator (`Denoiser.waits`) is said by the test.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dpstride
from dpstride import Denoiser, ForwardProcess, NonFiniteError, even_stride
from dpstride.evaluate import likelihood, sampling
from dpstride.runs.serving import hand_over, served
from dpstride.runs.storage import to_bytes
from dpstride.statistics import passes
from dpstride.statistics.artefact import to_tensors

PROCESS = ForwardProcess.linear(24)
SCHEDULE = even_stride(PROCESS, 4)
IMAGES = torch.randint(0, 256, (11, 1, 4, 4), generator=torch.Generator().manual_seed(1)).to(torch.uint8)


class Network:
    """Half of x, which remembers the threads that called it and refuses two at once."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self.calls = 0
        self.trouble: Callable[[int], None] = lambda calls: None
        self._inside = threading.Lock()

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        assert self._inside.acquire(blocking=False), "two calls at once"
        try:
            self.threads.add(threading.get_ident())
            self.calls += 1
            self.trouble(self.calls)
            return 0.5 * x + 0.01 * time.reshape(-1, 1, 1, 1)
        finally:
            self._inside.release()


def denoiser_of(network: Any) -> Denoiser:
    return Denoiser(network, PROCESS, predicts="x0", shape=(1, 4, 4), dtype=torch.float32)


JOBS: dict[str, Callable[[Denoiser], Any]] = {
    "estimate": lambda denoiser: dpstride.estimate(denoiser, IMAGES, batch_size=5, progress=False),
    "sample": lambda denoiser: dpstride.sample(denoiser, SCHEDULE, 11, batch_size=3),
    "sample, one batch": lambda denoiser: dpstride.sample(
        denoiser, SCHEDULE, 11, batch_size=11, sampler="ddim", eta=0.5
    ),
    "bits_per_dim": lambda denoiser: dpstride.bits_per_dim(denoiser, IMAGES, SCHEDULE, batch_size=3),
}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Denoiser, "waits", True)
    yield
    assert not at_work()


def at_work() -> bool:
    """Return whether units are in threads now: the probes are passed before that."""
    return any(thread.name.startswith("dpstride-units") for thread in threading.enumerate())


class Counter:
    """A number that one thread raises and another waits for."""

    def __init__(self) -> None:
        self.number, self._changed = 0, threading.Condition()

    def add(self) -> None:
        with self._changed:
            self.number += 1
            self._changed.notify_all()

    def reaches(self, wanted: int, seconds: float = 20.0) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self.number >= wanted, seconds)


def bits_of(result: Any) -> Any:
    if isinstance(result, dpstride.Statistics):
        return to_bytes(to_tensors(result)[0])
    return result.numpy().tobytes() if isinstance(result, Tensor) else result


@pytest.mark.parametrize("job", JOBS)
def test_results_are_the_same_bits_and_the_network_stays_in_its_thread(job: str, waits: None) -> None:
    network = Network()
    overlapped = bits_of(JOBS[job](denoiser_of(network)))
    assert network.threads == {threading.get_ident()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Denoiser, "waits", False)
        assert bits_of(JOBS[job](denoiser_of(Network()))) == overlapped


@pytest.mark.parametrize("job", JOBS)
def test_the_next_batch_is_made_while_the_network_runs(job: str, waits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network returns only when the noise of its next call is there, which without overlap it never would be."""
    network = Network()
    calls = 0

    def count(_: int) -> None:
        nonlocal calls
        calls += at_work()

    network.trouble = count
    JOBS[job](denoiser_of(network))
    last_with_next = calls - 1  # the last batch has no next one
    assert last_with_next > 2
    made, missed = Counter(), []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def noise(*args: Any, **options: Any) -> Any:
            result = function(*args, **options)
            if at_work():
                made.add()
            return result

        return noise

    monkeypatch.setattr(passes.Passes, "noisy", counted(passes.Passes.noisy))
    monkeypatch.setattr(sampling, "standard_normal", counted(sampling.standard_normal))
    monkeypatch.setattr(likelihood, "standard_normal", counted(likelihood.standard_normal))
    calls = 0

    def trouble(_: int) -> None:
        nonlocal calls
        if at_work():
            calls += 1
            if calls <= last_with_next and not made.reaches(calls + 1):
                missed.append(calls)

    network.trouble = trouble
    JOBS[job](denoiser_of(network))
    assert missed == []


@pytest.mark.parametrize("job", JOBS)
def test_errors_of_the_network_surface_as_they_are(job: str, waits: None) -> None:
    network = Network()
    denoiser = denoiser_of(network)
    JOBS[job](denoiser)  # what is tried before the work has passed

    def trouble(calls: int) -> None:
        if at_work():
            raise ZeroDivisionError("the network's own")

    network.trouble = trouble
    with pytest.raises(ZeroDivisionError, match="the network's own"):
        JOBS[job](denoiser)


def test_other_faults_surface_as_they_are(waits: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: Tensor, time: Tensor) -> Tensor:
        return torch.full_like(x, torch.nan) if at_work() and int(time.max()) > 20 else 0.5 * x

    with pytest.raises(NonFiniteError, match="NaN or infinity for sample"):
        JOBS["estimate"](denoiser_of(broken))
    with pytest.raises(NonFiniteError, match="NaN or infinity"):
        JOBS["sample"](denoiser_of(broken))

    def no_noise(*args: Any, **options: Any) -> Tensor:
        raise MemoryError("no room for noise")

    monkeypatch.setattr(sampling, "standard_normal", no_noise)
    with pytest.raises(MemoryError, match="no room for noise"):
        JOBS["sample"](denoiser_of(Network()))


def test_batches_are_halved_where_memory_runs_out(waits: None) -> None:
    def small(x: Tensor, time: Tensor) -> Tensor:
        if len(x) > 3:
            raise torch.OutOfMemoryError("out of memory")
        return 0.5 * x

    with pytest.warns(UserWarning, match="Out of memory"):
        found = JOBS["estimate"](denoiser_of(small))
    plain = dpstride.estimate(denoiser_of(lambda x, time: 0.5 * x), IMAGES, batch_size=3, progress=False)
    torch.testing.assert_close(found.squared_error, plain.squared_error)


@pytest.mark.parametrize("job", JOBS)
def test_an_interruption_leaves_no_thread_behind(job: str, waits: None) -> None:
    network = Network()
    denoiser = denoiser_of(network)

    def trouble(calls: int) -> None:
        if at_work():
            raise KeyboardInterrupt

    network.trouble = trouble
    with pytest.raises(KeyboardInterrupt):
        JOBS[job](denoiser)


def test_whoever_takes_results_may_stop_taking_them(waits: None) -> None:
    here = threading.get_ident()

    def compute(n: int) -> tuple[int, int]:
        return n, hand_over(threading.get_ident)()

    for unit, (n, thread) in served(compute, range(50)):
        assert (n, thread) == (unit, here)
        if unit == 7:
            break
    assert sorted(unit for unit, _ in served(compute, range(50))) == list(range(50))
    assert hand_over(lambda: 5)() == 5


def test_processes_of_a_launch_hand_over_each_to_its_own_thread(waits: None) -> None:
    """Two processes, by threads and a store in memory: every unit comes once, computed beside its own process's calls."""
    import torch.distributed as distributed

    from dpstride.runs.workers import Workers

    store = distributed.HashStore()
    served_by: dict[int, int] = {}

    def work(rank: int) -> list[int]:
        here = threading.get_ident()

        def compute(n: int) -> dict[str, Any]:
            served_by[n] = hand_over(threading.get_ident)()
            assert threading.get_ident() != served_by[n] == here
            return {"n": np.array(n)}

        workers = Workers(rank, 2, store=store)
        return [int(arrays["n"]) for _, arrays in workers.map(compute, range(40), hands_over=True)]

    helper = threading.Thread(target=work, args=(1,))
    helper.start()
    assert sorted(work(0)) == list(range(40))
    helper.join(timeout=60)
    assert set(served_by) == set(range(40))
