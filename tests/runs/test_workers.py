"""Several processes: started for real by torchrun, they give what one gives, bit for bit, and fail together."""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import pytest

from dpstride.cli import main
from dpstride.runs.workers import Workers, current
from dpstride.statistics import probes, spots
from mixture_model import write_mixture

TESTS = Path(__file__).parents[1]
# What every process runs: small_network's data and network, in float32 so that other batches would show.
PROGRAM = """
    import json, os, sys
    import numpy as np
    import torch
    sys.path.insert(0, sys.argv[1])
    from small_network import KINDS, PROCESS, Net, denoiser_of
    from dpstride import ForwardProcess, estimate
    from dpstride.statistics import units
    from dpstride.runs.storage import to_bytes
    from dpstride.statistics.artefact import to_tensors
    from dpstride.runs.workers import join

    folder, rank = sys.argv[2], os.environ.get("RANK", "alone")
    workers = join()
    report = {"rank": workers.rank, "size": workers.size, "steps": []}
    units.RANGE = 10

    def run(data, name, spread=1.0, **options):
        denoiser = denoiser_of(True, ForwardProcess.linear(24), network_dtype=torch.float32, spread=spread)
        statistics = estimate(
            denoiser, data, batch_size=5, progress=False, checkpoint=f"{folder}/{name}-{workers.size}", **options
        )
        report["steps"] += [t for call in denoiser.network.calls if len(call) > 2 for t in call]
        return statistics

    images = KINDS["uint8"][0]
    report["images"] = len(images)
    few = run(images, "estimate", indices=[1, 5, 9, 24])
    more = run(images, "estimate")  # a call that takes up another, as adaptive estimation does
    report["same"] = to_bytes(to_tensors(more)[0]).hex()[-4000:]
    sent = dict(workers.map(lambda n: {"x": np.full(2_000_000, n), "rank": np.array(workers.rank)}, list(range(6))))
    if workers.main:
        assert sorted(sent) == list(range(6)) and all((sent[n]["x"] == n).all() for n in sent)
    assert workers.share({"a": [1, None]} if workers.main else None) == {"a": [1, None]}
    if workers.size > 2:
        try:  # one process has other data
            run(images if workers.rank != 1 else images.flip(0), "other")
        except Exception as error:
            report["error"] = [type(error).__name__, str(error)]
    if workers.size == 2:
        try:  # one process has an edited model, with the same weights
            run(images, "edited", spread=1.0 if workers.main else 1.01)
        except Exception as error:
            report["edited"] = [type(error).__name__, str(error)]
    with open(f"{folder}/report-{workers.size}-{rank}.json", "w") as file:
        json.dump(report, file)
"""


def launch(folder: Path, processes: int) -> list[dict[str, Any]]:
    """The program in so many processes; what each of them reports."""
    (folder / "program.py").write_text(textwrap.dedent(PROGRAM))
    words = [str(folder / "program.py"), str(TESTS), str(folder)]
    runner = [sys.executable]
    if processes > 1:
        runner += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([*runner, *words], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    found = [json.loads(path.read_text()) for path in sorted(folder.glob(f"report-{processes}-*.json"))]
    assert [report["size"] for report in found] == [processes] * processes
    return found


def test_three_processes_give_what_one_gives_and_fail_together(tmp_path: Path) -> None:
    (alone,) = launch(tmp_path, 1)
    three = launch(tmp_path, 3)
    assert (tmp_path / "estimate-3").read_bytes() == (tmp_path / "estimate-1").read_bytes()
    assert [report["same"] for report in three] == [alone["same"]] * 3  # every process has the result
    # Together they did what one did, every image once at every t, and each had its share. What comes on top is what each of two
    # estimates checks: a batch of eight probes, and numbers computed again at places drawn anew.
    for reports in ([alone], three):
        times = sum((Counter(report["steps"]) for report in reports), Counter())
        assert sorted(times) == list(range(1, 25))
        assert min(times.values()) >= alone["images"]
        checks = 2 * len(reports) * (8 + spots.SPOTS + spots.OF_UNIT + probes.AFTER)
        assert sum(times.values()) <= 24 * alone["images"] + checks
    assert all(report["steps"] for report in three)
    assert three[1]["error"][0] == "OtherWorkError"
    assert "Worker 1 holds other work: data.fingerprint" in three[1]["error"][1]
    assert three[1]["error"][1].endswith("Start every process with the same model, data and options.")
    for report in (three[0], three[2]):
        assert report["error"][0] == "WorkerError"
        assert report["error"][1].startswith("Worker 1: Worker 1 holds other work")
    assert not (tmp_path / "other-3").exists()


def test_a_worker_with_an_edited_model_is_refused(tmp_path: Path) -> None:
    main, other = launch(tmp_path, 2)
    assert other["edited"][0] == "OtherWorkError"
    assert "Worker 1 holds work of a model that behaves differently: on the same inputs" in other["edited"][1]
    assert other["edited"][1].endswith("Start every process with the same model, data and options.")
    assert main["edited"][0] == "WorkerError"
    assert not (tmp_path / "edited-2").exists()


def test_two_machines_and_accelerate_give_what_one_process_gives(tmp_path: Path) -> None:
    """Machines are folders here: each has its launcher, they meet at an address, and only the first writes."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        endpoint = f"localhost:{free.getsockname()[1]}"
    python = [sys.executable, "-m"]
    nodes = [*python, "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--rdzv-id", "test"]
    nodes += ["--rdzv-backend", "c10d", "--rdzv-endpoint", endpoint, "-m", "dpstride"]
    launches = {
        "alone": [*python, "dpstride"],
        "accelerate": [*python, "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "-m", "dpstride"],
        "node-0": nodes,
        "node-1": nodes,
    }
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    started = {}
    for name, runner in launches.items():
        folder = tmp_path / name
        folder.mkdir()
        write_mixture(folder, "worker_model", T=30, samples=12)
        words = ["estimate", "worker_model:model", "data.npy", "-o", "statistics", "-q"]
        with (folder / "log").open("w") as log:
            started[name] = subprocess.Popen([*runner, *words], cwd=folder, env=environment, stdout=log, stderr=log)
    for name, process in started.items():
        assert process.wait(300) == 0, (tmp_path / name / "log").read_text()
    written = {name: tmp_path / name / "statistics" for name in launches if (tmp_path / name / "statistics").exists()}
    assert len(written) == 3  # one of the two nodes is the main one
    assert len({path.read_bytes() for path in written.values()}) == 1


def test_one_process_needs_no_launch() -> None:
    workers = Workers()
    assert (workers.main, workers.size, current().size) == (True, 1, 1)
    arrays = {"x": np.arange(3)}
    assert workers.share_arrays(arrays) is arrays
    assert workers.share([1]) == [1]
    found = workers.map(lambda n: {"n": np.array(n)}, [3, 1])
    assert [(unit, int(result["n"])) for unit, result in found] == [(3, 3), (1, 1)]
    workers.fail(ValueError("nobody to tell"))


class Counting:
    """A network that notes how many threads are in it at a time with batches; a sample alone is a check beside the work."""

    def __init__(self, stateless: bool) -> None:
        self.stateless = stateless
        self.inside = self.most = 0
        self.threads: set[int] = set()

    def __call__(self, x: Any, time: Any) -> Any:
        import torch

        work = len(x) > 1
        self.inside += work
        self.most = max(self.most, self.inside)
        self.threads.add(torch.get_num_threads())
        sleep(0.01)
        self.inside -= work
        return 0.5 * x


@pytest.fixture
def two_threads() -> Iterator[None]:
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2  # whatever was done
    torch.set_num_threads(before)


def test_units_are_computed_at_once_where_the_network_may_be(two_threads: None, tmp_path: Path) -> None:
    import torch

    from dpstride import Denoiser, ForwardProcess, estimate
    from dpstride.runs.storage import to_bytes
    from dpstride.statistics.artefact import to_tensors

    images = torch.randint(0, 256, (6, 1, 3, 3), dtype=torch.uint8)
    found = {}
    for stateless in (False, True):
        network = Counting(stateless)
        denoiser = Denoiser(network, ForwardProcess.linear(30), predicts="x0", dtype=torch.float32)
        statistics = estimate(denoiser, images, batch_size=4, progress=False, checkpoint=tmp_path / str(stateless))
        found[stateless] = to_bytes(to_tensors(statistics)[0])
        assert network.most == (2 if stateless else 1)
        assert network.threads == ({2, 1} if stateless else {2})  # the trial of several t is made outside
    assert found[True] == found[False]


def test_an_error_in_a_thread_ends_the_work_and_keeps_what_was_finished(two_threads: None) -> None:
    done: list[int] = []

    def compute(n: int) -> dict[str, Any]:
        if n == 5:
            raise ValueError("bad unit")
        return {"n": np.array(n)}

    with pytest.raises(ValueError, match="bad unit"):
        done.extend(unit for unit, _ in Workers().map(compute, list(range(100)), at_once=2))
    assert done == [0, 1, 2, 3, 4]
    for unit, _ in Workers().map(compute, [7, 8, 9, 10, 11], at_once=2):
        if unit == 8:
            break  # whoever takes results may stop taking them


def test_an_error_in_one_process_comes_after_what_was_finished() -> None:
    """The same by threads and a store in memory, where the order of events can be chosen."""
    import threading

    import torch.distributed as distributed

    from dpstride.runs.workers import WorkerError

    store = distributed.HashStore()
    main, helper = Workers(0, 2, store=store), Workers(1, 2, store=store)
    second, raised = threading.Event(), []

    def helps() -> None:
        def compute(n: int) -> dict[str, Any]:
            if second.is_set():
                raise ValueError("bad unit")
            second.set()
            return {"n": np.array(n)}

        try:
            for _ in helper.map(compute, list(range(50))):
                pass
        except ValueError as error:
            raised.append(str(error))

    thread = threading.Thread(target=helps)

    def compute(n: int) -> dict[str, Any]:
        if n == 0:
            thread.start()
        while n == 0 and not store.check(["dpstride/error"]):
            pass
        return {"n": np.array(n)}

    found = []
    results = main.map(compute, list(range(50)))
    with pytest.raises(WorkerError, match="Worker 1: bad unit"):
        found.extend(unit for unit, _ in results)
    thread.join(timeout=60)
    assert sorted(found) == [0, 1]  # its own unit, and the one that the other had finished
    assert raised == ["bad unit"]


@pytest.mark.parametrize("size", ["x", "", "0", "-2", "1.5", "9" * 5000])
def test_a_number_of_processes_that_is_none_is_refused(
    size: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dpstride.runs.workers import join

    monkeypatch.setenv("WORLD_SIZE", size)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            main(["models"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(
        "Error: WORLD_SIZE must be a whole number from 1 to 1000000000, as torchrun and accelerate launch set it, not"
    )
    assert "Unset it and WORLD_SIZE to run one process." in said
    with pytest.raises(ValueError, match="WORLD_SIZE must be a whole number"):
        join()


@pytest.mark.attack("text that forges or hides output")
@pytest.mark.parametrize(("name", "value"), [("RANK", "x"), ("RANK", "2"), ("LOCAL_RANK", "-1"), ("MASTER_PORT", "x")])
def test_other_words_of_a_launch_that_make_no_sense_are_refused_aloud(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process with a rank that is no number took itself for one of the others, and ended without a word."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(name, value)
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end:
            main(["models"])
    finally:
        signal.signal(signal.SIGTERM, before)
    assert end.value.code == 2
    assert f"Error: {name} must be a whole number from 0 to" in capsys.readouterr().err


def test_a_verb_without_shared_work_runs_in_the_main_process_only(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        for rank, said in (("0", True), ("1", False)):
            monkeypatch.setenv("WORLD_SIZE", "2")
            monkeypatch.setenv("RANK", rank)
            with pytest.raises(SystemExit) as end:
                main(["models"])
            assert end.value.code == 0
            assert ("fashion-simple" in capsys.readouterr().out) == said
    finally:
        signal.signal(signal.SIGTERM, before)


def test_the_old_place_of_join_still_works_and_warns() -> None:
    from dpstride.runs import workers

    with pytest.warns(DeprecationWarning, match=r"dpstride\.statistics\.workers is now dpstride\.runs\.workers"):
        old = importlib.import_module("dpstride.statistics.workers")
    assert old.join is workers.join
