"""Feeds damaged files to readers, under a limit of memory and a time limit for each file.

`make test` calls `fuzz` in its own process; `make torture` runs this file in one process per reader:
``python tests/fuzz/campaign.py FOLDER SEED READER=FILES …`` prints one JSON line per reader: files tried, accepted and
refused. What it must not meet ends it: an undocumented error (hypothesis then shows the least edit that causes it, exit
code 1), the time limit (signal 27, or 14 when it waits), a crash (signal 11). The file at fault is left in FOLDER.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import signal
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SECONDS = 20  # of the processor for one file
WAITED = 900  # seconds on the clock; the machine may be busy, or this process stopped for a while
MEMORY = 3 * 2**30  # beyond what the process has before the first file
MOST_RESIDENT = 2**30 + 2**29  # really touched: the 1 GiB that a small file may unpack to, and what surrounds it


def main() -> None:
    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    wanted = {name: int(files) for name, _, files in (word.rpartition("=") for word in sys.argv[3:])}
    os.environ["HF_HUB_OFFLINE"] = "1"
    faulthandler.enable()
    for limit in (signal.SIGALRM, signal.SIGPROF):
        faulthandler.register(limit, chain=True)
    warnings.simplefilter("ignore")
    prepare(wanted)
    resource.setrlimit(resource.RLIMIT_AS, (memory_limit(),) * 2)
    for number, (name, files) in enumerate(wanted.items()):
        tried, accepted = fuzz(name, files, folder / str(number), seed)
        print(json.dumps({"reader": name, "tried": tried, "accepted": accepted}), flush=True)


def prepare(wanted: Iterable[str]) -> None:
    """Import what readers import, so that the limit counts files only."""
    import numba  # noqa: F401
    import torch

    torch.set_num_threads(1)
    if any("hub" in name for name in wanted):
        import datasets  # noqa: F401
    if any("diffusers" in name or name.split()[0] in ("OpenAI", "training", "zoo", "DPStride") for name in wanted):
        import diffusers

        diffusers.utils.logging.set_verbosity(diffusers.utils.logging.CRITICAL)
        diffusers.utils.logging.disable_progress_bar()


def memory_limit() -> int:
    """Bytes of addresses that may be in use: those now, and `MEMORY` more."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + MEMORY


def fuzz(name: str, files: int, folder: Path, seed_number: int) -> tuple[int, int]:
    import hypothesis
    from hypothesis import HealthCheck, Phase, given, settings, strategies as st
    from readers import READERS, restore

    reader = READERS[name]
    folder.mkdir(parents=True)
    reader.make(folder)
    good = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    restore(good, folder)
    reader.use(reader.read(folder))  # the good files are accepted
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    counts = {"tried": 0, "accepted": 0}

    @hypothesis.seed(seed_number)
    @settings(
        max_examples=files,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
        print_blob=False,
        report_multiple_bugs=False,
    )
    @given(st.data())
    def one(data: Any) -> None:
        target = data.draw(st.sampled_from(sorted(reader.targets)))
        content = data.draw(reader.targets[target](good[target]))
        restore(good, folder)
        (folder / target).write_bytes(content)
        signal.alarm(WAITED)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            accepted = judge(reader, folder)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        counts["tried"] += 1
        counts["accepted"] += accepted

    one()
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert resident - before < MOST_RESIDENT, f"{name}: {(resident - before) / 2**20:.0f} MiB were touched"
    return counts["tried"], counts["accepted"]


def judge(reader: Any, folder: Path) -> bool:
    """Whether the files were accepted; an error other than the documented ones is raised again."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # numpy's: a number that should have been refused
        try:
            found = reader.read(folder)
        except (ValueError, OSError) as error:
            check_error(error, str(folder) if reader.names_the_file else "")
            return False
        try:
            reader.use(found)
        except (ValueError, OSError) as error:  # used by a later stage, which knows no file
            check_error(error, "")
    return True


def check_error(error: BaseException, path: str) -> None:
    """A refusal says why and of which file, and is not what is left of an attempt to take all memory."""
    assert path in str(error), f"does not name the file: {error}"
    assert str(error).strip(), f"{type(error).__name__} without a message"
    assert len(str(error)) < 5000, f"a message of {len(str(error))} characters"
    cause: BaseException | None = error
    while cause is not None:
        assert not isinstance(cause, MemoryError), "memory ran out"
        assert "allocate" not in str(cause).lower(), f"memory ran out: {cause}"
        cause = cause.__cause__ or cause.__context__


if __name__ == "__main__":
    here = Path(__file__).parent
    sys.path[:0] = [str(here), str(here.parent)]  # as pytest has them
    main()
