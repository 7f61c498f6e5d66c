"""Every reader on damaged files: it reads them or refuses them by name, and nothing else happens.

A few hundred files in `make test`; with DPSTRIDE_TORTURE=1 (`make torture`) more than 10,000, one process per reader.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import warnings
from pathlib import Path

import campaign
import pytest
from readers import READERS

from tallies import TRIED, Fed

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
    TRIED.extend(Fed(**line) for line in lines)
    assert done.returncode == 0, (
        f"exit code {done.returncode} (negative: a signal; -27 and -14 are time limits, -11 a crash); the file is in {folder}; "
        f"done before: {lines}\n{done.stderr[-6000:]}"
    )
    assert {line["reader"] for line in lines} == set(wanted)
    for line in lines:
        # A search space may be exhausted before the number is reached, but not by half.
        assert line["tried"] >= wanted[line["reader"]] // 2, line
        assert line["accepted"] < line["tried"], f"{line['reader']} refuses nothing"


DIFFUSERS = {
    name for name in READERS if name.split()[0] in ("OpenAI", "training", "diffusers", "zoo", "DPStrideScheduler")
}


@pytest.mark.skipif(TORTURE, reason="the long version runs instead")
@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_read_or_refused(tmp_path: Path, name: str) -> None:
    if name in DIFFUSERS:
        pytest.importorskip("diffusers")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that decode; what numpy warns of is an error all the same
        campaign.prepare([name])
        resource.setrlimit(resource.RLIMIT_AS, (campaign.memory_limit(), hard))
        try:
            tried, accepted = campaign.fuzz(name, READERS[name].quick, tmp_path / "files", int(SEED))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    TRIED.append(Fed(name, tried, accepted))
    assert accepted < tried


@pytest.mark.torture
@pytest.mark.skipif(not TORTURE, reason="make torture")
@pytest.mark.parametrize("name", READERS)
def test_ten_thousand_damaged_files(tmp_path: Path, name: str) -> None:
    total = sum(reader.share for reader in READERS.values())
    run(tmp_path / "files", {name: -(-FILES * READERS[name].share // total)})
