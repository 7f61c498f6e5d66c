"""A race spread over processes that torchrun starts gives what one process gives, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from dpstride.zoo.mixture import mixture_data

# Every process notes how many samples its network was passed.
MODEL = """
import os

from dpstride import Denoiser
from dpstride.zoo.mixture import mixture_denoiser


def model():
    exact = mixture_denoiser(T=24)

    def network(x, time):
        with open(f"passed-{os.environ.get('RANK', 'alone')}", "a") as file:
            file.write(f"{len(x)} ")
        return exact.network(x, time)

    return Denoiser(network, exact.process, predicts="x0", shape=exact.shape, clip=exact.clip, name="counted")
"""


def test_a_launched_race_gives_what_one_process_gives(tmp_path: Path) -> None:
    (tmp_path / "raced_model.py").write_text(MODEL)
    np.save(tmp_path / "data.npy", mixture_data(80, seed=0).numpy())
    words = ["tune", "raced_model:model", "data.npy", "--sampler", "dpmpp_2m", "--batch-size", "8", "-q"]
    words += ["--budgets", "2,3", "--samples", "32", "--race-samples", "32", "--reference-steps", "6"]
    alone = [sys.executable, "-m", "dpstride"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *alone[1:]]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    for runner, output in ((alone, "alone"), (torchrun, "launched")):
        subprocess.run([*runner, *words, "-o", output], cwd=tmp_path, env=environment, check=True, capture_output=True)
    for name in ("race.json", "schedules.json", "table.txt"):
        assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "launched" / name).read_bytes(), name
    once, *both = (sum(map(int, (tmp_path / f"passed-{rank}").read_text().split())) for rank in ("alone", 0, 1))
    assert min(both) > 0  # whichever process is free takes the next batch
    assert sum(both) < 1.2 * once  # and little was done twice
