"""Kill a run at random moments, start it again, and compare what it leaves with what an undisturbed run leaves."""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread

from jobs import COMMANDS, PREPARED_BY, evaluations, left_by

from tallies import TRIED, Killed

NAMES = {
    "mixed": "`find --objective mixed`",
    "trajectory": "`find --objective trajectory`",
    "train": "training",
}  # in the table
PATIENCE = 300.0  # seconds; a run takes a few, on an idle machine


class Nursery:
    """Children that start at once; see nursery.py."""

    def __init__(self) -> None:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.started: Queue[int] = Queue()
        self.codes: dict[int, Queue[int]] = {}
        self.reader = Thread(target=self._read, daemon=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            match line.split():
                case [pid]:
                    self.codes[int(pid)] = Queue()
                    self.started.put(int(pid))
                case [pid, code]:
                    self.codes[int(pid)].put(int(code))

    def start(self, folder: Path, words: list[str], environment: dict[str, str]) -> int:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([str(folder), environment, words]) + "\n")
        self.process.stdin.flush()
        return self.started.get(timeout=PATIENCE)

    def wait(self, pid: int, seconds: float) -> int | None:
        """The exit code, or None if it still runs after so many seconds."""
        try:
            code = self.codes[pid].get(timeout=max(0.0, seconds))
        except Empty:
            return None
        self.codes[pid].put(code)
        return code

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(timeout=PATIENCE)
        self.process.stdout.close()


@contextmanager
def nursery() -> Iterator[Nursery]:
    found = Nursery()
    try:
        yield found
    finally:
        found.close()


@dataclass
class Run:
    """One start of a job, in one process or as several workers of one launch."""

    nursery: Nursery
    pids: list[int]

    @classmethod
    def start(cls, nursery: Nursery, job: str, folder: Path, workers: int) -> Run:
        words = shlex.split(COMMANDS[job])
        if workers == 1:
            return cls(nursery, [nursery.start(folder, words, {})])
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        launch = {"WORLD_SIZE": str(workers), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        ranks = [{"RANK": str(n), "LOCAL_RANK": str(n), "LOCAL_WORLD_SIZE": str(workers)} for n in range(workers)]
        return cls(nursery, [nursery.start(folder, words, launch | rank) for rank in ranks])

    def ends_within(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        return all(self.nursery.wait(pid, until - time.monotonic()) is not None for pid in self.pids)

    @property
    def codes(self) -> list[int | None]:
        return [self.nursery.wait(pid, 0.0) for pid in self.pids]

    def kill(self, which: int) -> bool:
        """kill -9 one process; then do as launchers do: end the others, politely first. False if it has just ended."""
        try:
            os.kill(self.pids[which], signal.SIGKILL)
        except ProcessLookupError:
            return False
        for number, after in ((signal.SIGTERM, 20.0), (signal.SIGKILL, PATIENCE)):
            for pid in self.pids:
                if self.nursery.wait(pid, 0.0) is None:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
            if self.ends_within(after):
                return True
        raise AssertionError(f"{self.pids} outlive kill -9")


def survive(nursery: Nursery, job: str, base: Path, kills: int, workers: int = 1, seed: int = 0) -> Killed:
    """Kill ``job`` so many times, at random moments, and check what it leaves each time that it comes to its end."""
    tally = Killed(NAMES.get(job, f"`{job}`"), str(workers))
    TRIED.append(tally)
    rng = random.Random(f"{job} {workers} {seed}")
    if job in PREPARED_BY:
        run = Run.start(nursery, PREPARED_BY[job], base, workers=1)
        assert run.ends_within(PATIENCE)
        assert run.codes == [0], (base / "log").read_text()
    (base / "undisturbed").mkdir()
    start = time.monotonic()
    run = Run.start(nursery, job, base / "undisturbed", workers)
    assert run.ends_within(PATIENCE), f"{job} does not end"
    seconds = time.monotonic() - start
    log = (base / "undisturbed" / "log").read_text()
    assert run.codes == [0] * workers, log
    expected, tally.needed = left_by(base / "undisturbed"), evaluations(base / "undisturbed")
    assert expected
    assert "left over" not in expected.values()
    folder = base / "0"
    folder.mkdir()
    while True:
        run = Run.start(nursery, job, folder, workers)
        tally.runs += 1
        # Most kills come early in what is left, so that a folder sees several of them.
        moment = PATIENCE if tally.kills >= kills else seconds * rng.random() ** 2
        if not run.ends_within(moment) and tally.kills < kills and run.kill(rng.randrange(workers)):
            tally.kills += 1
            continue
        assert run.ends_within(PATIENCE), f"{job} does not end; see {folder / 'log'}"
        assert run.codes == [0] * workers, (folder / "log").read_text()
        found = left_by(folder)
        assert found == expected, {
            name: (found.get(name), expected.get(name))
            for name in found | expected
            if found.get(name) != expected.get(name)
        }
        tally.finished += 1
        tally.repeated += evaluations(folder) - tally.needed
        if tally.kills >= kills:
            return tally
        folder = base / str(tally.finished)
        folder.mkdir()
