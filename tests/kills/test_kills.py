"""kill -9 at random moments of estimate, find, study, sampling and training, and of one worker among two, then the same again.

A few kills in `make test`; with DPSTRIDE_TORTURE=1 (`make torture`) more than 50.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Nursery, Run, nursery, survive
from jobs import COMMANDS, evaluations, left_by

from dpstride.runs.lock import Lock
from dpstride.statistics.probes import AFTER, EVALUATIONS as PROBES
from dpstride.statistics.spots import OF_UNIT, SPOTS
from tallies import TRIED, Killed

TORTURE = os.environ.get("DPSTRIDE_TORTURE") == "1"

EVALUATIONS = PROBES + 2 * SPOTS + OF_UNIT + AFTER  # before, beside and after the work, in every run


@pytest.fixture(scope="module")
def children() -> Iterator[Nursery]:
    with nursery() as found:
        yield found


def test_estimate_survives_kills_and_repeats_little(children: Nursery, tmp_path: Path) -> None:
    tally = survive(children, "estimate", tmp_path, kills=2)
    # A unit is 17 t of 60 samples in 64 batches; each kill costs at most two, one per thread, and the probes.
    assert tally.repeated <= tally.kills * (2 * 17 * 60 + EVALUATIONS) + EVALUATIONS * (tally.runs - 1)


def test_one_worker_of_two_is_killed(children: Nursery, tmp_path: Path) -> None:
    tally = survive(children, "estimate", tmp_path, kills=1, workers=2)
    assert tally.repeated <= tally.kills * 2 * (17 * 60 + EVALUATIONS) + 2 * EVALUATIONS * (tally.runs - 1)


def test_sampling_survives_kills_and_repeats_little(children: Nursery, tmp_path: Path) -> None:
    tally = survive(children, "sample", tmp_path, kills=2)
    # Two batches of 8 samples, 30 steps, and the probes.
    assert tally.repeated <= tally.kills * (2 * 8 * 30 + EVALUATIONS) + EVALUATIONS * (tally.runs - 1)


def test_find_survives_kills_with_every_file(children: Nursery, tmp_path: Path) -> None:
    survive(children, "find", tmp_path, kills=2)


def test_a_launch_whose_folder_is_taken_ends_in_every_process(children: Nursery, tmp_path: Path) -> None:
    """The main process alone takes the lock; the others must not wait for it for ever."""
    with Lock(tmp_path / "out"):
        run = Run.start(children, "find", tmp_path, workers=2)
        assert run.ends_within(120.0)
    assert 0 not in run.codes
    assert "out: another run is working on this output" in (tmp_path / "log").read_text()
    assert evaluations(tmp_path) <= PROBES  # the other process may have begun with its probes


def test_training_survives_a_kill(children: Nursery, tmp_path: Path) -> None:
    survive(children, "train", tmp_path, kills=1)


@pytest.mark.torture
@pytest.mark.skipif(not TORTURE, reason="make torture")
@pytest.mark.parametrize(
    ("job", "kills", "workers"),
    [
        ("estimate", 15, 1),
        ("find", 12, 1),
        ("mixed", 5, 1),
        ("trajectory", 5, 1),
        ("study", 12, 1),
        ("sample", 10, 1),
        ("train", 8, 1),
        ("estimate", 6, 2),
        ("study", 4, 3),
        ("sample", 4, 2),
    ],
)
def test_many_kills(children: Nursery, tmp_path: Path, job: str, kills: int, workers: int) -> None:
    survive(children, job, tmp_path, kills, workers, seed=1)


@pytest.mark.torture
@pytest.mark.skipif(not TORTURE, reason="make torture")
def test_torchrun_survives_kills_of_its_workers(children: Nursery, tmp_path: Path) -> None:
    """The launcher itself, which ends the other worker; whichever is killed, the same command goes on."""
    import random

    rng, kills = random.Random(2), 4
    words = shlex.split(COMMANDS["estimate"])[1:]
    runner = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "dpstride"]
    tally = Killed("`estimate`", "2, under torchrun")
    TRIED.append(tally)
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}

    def start(folder: Path) -> subprocess.Popen[bytes]:
        folder.mkdir(exist_ok=True)
        return subprocess.Popen([*runner, *words], cwd=folder, env=environment, stderr=subprocess.DEVNULL)

    undisturbed = tmp_path / "undisturbed"
    assert start(undisturbed).wait(300) == 0
    tally.needed = evaluations(undisturbed)
    while True:
        folder = tmp_path / str(tally.finished)  # a run may come to its end before it is killed: then another begins
        before = evaluations(folder)
        process = start(folder)
        tally.runs += 1
        if tally.kills < kills:
            while evaluations(folder) == before and process.poll() is None:
                time.sleep(0.01)
            time.sleep(0.3 * rng.random())
            workers = children_of(process.pid)
            if len(workers) == 2 and process.poll() is None:
                os.kill(rng.choice(workers), 9)
                # The launcher sees a worker that was killed right at the end of its work, too.
                assert process.wait(300) != 0
                tally.kills += 1
                continue
        assert process.wait(300) == 0
        assert left_by(folder) == left_by(undisturbed)
        tally.finished += 1
        tally.repeated += evaluations(folder) - tally.needed
        if tally.kills == kills:
            return


def children_of(pid: int) -> list[int]:
    """None of a process that has ended."""
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
