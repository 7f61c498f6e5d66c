"""A model in closed form that counts its passes, and `dpstride find` on it, for tests of runs on one output."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest

import dpstride.cli.report
from dpstride.zoo.mixture import mixture_data

# The exact denoiser of a mixture: counts what it is asked, and waits at the first pass on held-out data when told to.
MODEL = """
import time
from pathlib import Path

import dpstride
from dpstride.zoo.mixture import mixture_denoiser

def made(T):
    inner = mixture_denoiser(T=T)
    def network(x, t):
        with open("passes", "ab", buffering=0) as file:
            file.write(b"1\\n")
        if Path("out/schedules.json").exists() and Path("slowly").exists():
            Path("scoring").touch()
            time.sleep(0.05)
        return inner.network(x, t)
    return dpstride.Denoiser(network, inner.process, predicts=inner.predicts, clip=inner.clip, shape=inner.shape, name="m")

def model():
    return made(40)

def longer():
    return made(50)
"""
FIND = [
    "find",
    "runs_model:model",
    "data.npy",
    "-o",
    "out",
    "--pictures",
    "0",
    "--samples",
    "12",
    "--heldout-samples",
    "12",
    "--budgets",
    "4,8",
    "--no-check",  # its evaluations would be counted with those of the runs
]


STUDY = [
    "study", "runs_model:model", "data.npy", "-o", "out", "--samples", "4", "-k", "4", "--choosing-samples", "12",
    "--heldout-samples", "12", "--features", "none",
]  # fmt: skip


def write_inputs(folder: Path) -> None:
    (folder / "runs_model.py").write_text(MODEL)
    np.save(folder / "data.npy", mixture_data(30, seed=0).numpy())
    np.save(folder / "other.npy", mixture_data(30, seed=5).numpy())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def passes() -> int:
    return len(Path("passes").read_bytes()) // 2 if Path("passes").exists() else 0


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().err


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "dpstride", *words]


def environment(place: Path) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": f"{Path(dpstride.__file__).parents[1]}:{place}", "OMP_NUM_THREADS": "1"}
