"""Every reader on damaged files: it reads them or refuses them by name, and nothing else happens.

A few hundred files in `make test`; with DPSTRIDE_TORTURE=1 (`make torture`) more than 10,000, one process per reader.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from readers import READERS
from tally import TALLY

CAMPAIGN = Path(__file__).with_name("campaign.py")
TORTURE = os.environ.get("DPSTRIDE_TORTURE") == "1"
FILES = int(os.environ.get("DPSTRIDE_FUZZ_FILES", "12000"))  # of `make torture`, over all readers
SEED = os.environ.get("DPSTRIDE_FUZZ_SEED", "0")


def run(folder: Path, wanted: dict[str, int]) -> None:
    words = [f"{name}={files}" for name, files in wanted.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(CAMPAIGN), str(folder), SEED, *words], capture_output=True, text=True, env=environment
    )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    TALLY.extend(lines)
    assert done.returncode == 0, (
        f"exit code {done.returncode} (negative: a signal; -14 is the time limit, -11 a crash); the file is in {folder}; "
        f"done before: {lines}\n{done.stderr[-6000:]}"
    )
    assert {line["reader"] for line in lines} == set(wanted)
    for line in lines:
        # A search space may be exhausted before the number is reached, but not by half.
        assert line["tried"] >= wanted[line["reader"]] // 2, line
        assert line["accepted"] < line["tried"], f"{line['reader']} refuses nothing"


# Two processes, so that two workers share the time: one that needs diffusers, one that does not.
HEAVY = {name for name in READERS if name.split()[0] in ("OpenAI", "training", "diffusers", "zoo", "DPStrideScheduler")}


@pytest.mark.skipif(TORTURE, reason="the long version runs instead")
@pytest.mark.parametrize("heavy", [False, True], ids=["arrays and artefacts", "models"])
def test_damaged_files_are_read_or_refused(tmp_path: Path, heavy: bool) -> None:
    if heavy and find_spec("diffusers") is None:
        pytest.skip("diffusers is not installed")
    run(tmp_path / "files", {name: reader.quick for name, reader in READERS.items() if (name in HEAVY) == heavy})


@pytest.mark.torture
@pytest.mark.skipif(not TORTURE, reason="make torture")
@pytest.mark.parametrize("name", READERS)
def test_ten_thousand_damaged_files(tmp_path: Path, name: str) -> None:
    total = sum(reader.share for reader in READERS.values())
    run(tmp_path / "files", {name: -(-FILES * READERS[name].share // total)})
