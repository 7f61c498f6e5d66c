"""The bench of what runs beside an accelerator knows the insides that it replaces; its figures are not looked at here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_the_bench_runs() -> None:
    words = [sys.executable, str(BENCHMARKS / "bench_accelerator.py"), "--quick"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for work in ("estimate, 3 t × 256 samples", "bits_per_dim", "sample", "million elements/s"):
        assert work in done.stdout
