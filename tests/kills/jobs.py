"""What is killed: long work on small models, slowed down so that there is time to kill it, and what it must leave."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file

import dpstride
from dpstride.evaluate import stream
from dpstride.evaluate.features.extractor import FeatureExtractor
from dpstride.runs import progress
from dpstride.training.settings import TrainingSettings
from dpstride.training.train import train

T, SAMPLES, SHAPE = 40, 60, (1, 4, 4)


def data() -> np.ndarray[Any, Any]:
    """Images that are not of one kind."""
    return np.random.default_rng(0).integers(0, 256, (2 * SAMPLES, *SHAPE)).astype(np.uint8)


def model() -> dpstride.Denoiser:
    """A slow float32 network with a learned variance that notes every evaluation, for threads too; keeps its work at once."""
    progress.SECONDS = stream.STATE_SECONDS = 0.0
    generator = torch.Generator().manual_seed(0)
    inner, outer = torch.randn(64, 17, generator=generator) / 4, torch.randn(32, 64, generator=generator) / 8

    def network(x: torch.Tensor, time_: torch.Tensor) -> torch.Tensor:
        time.sleep(0.003)
        note(len(x))
        hidden = torch.cat([x.flatten(1), time_[:, None].to(x.dtype) / T], dim=1) @ inner.T
        return (torch.tanh(hidden) @ outer.T).reshape(len(x), 2, 4, 4)

    network.stateless = True  # type: ignore[attr-defined]
    process = dpstride.ForwardProcess.linear(T)
    return dpstride.Denoiser(network, process, variance="learned_range", shape=SHAPE, dtype=torch.float32, name="slow")


def note(evaluations: int) -> None:
    """Add to the list of evaluations, in one write that no kill can halve."""
    with open("evaluations", "ab", buffering=0) as file:
        file.write(f"{evaluations}\n".encode())


def features() -> FeatureExtractor:
    """Five pixels."""
    return FeatureExtractor(
        "pixels", "Fréchet distance, pixels", 5, "1", lambda images: images.flatten(1)[:, :5].double() / 255.0
    )


def training(folder: str) -> None:
    """A few steps of a tiny network."""
    images = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (64, 1, 8, 8)).astype(np.uint8))
    settings = TrainingSettings(steps=24, batch_size=8, warmup=4, channels=(8, 8))
    train(images, folder, settings, held_out=images[:8], evaluate_every=6, checkpoint_every=2, progress=False)


def evaluations(folder: Path) -> int:
    """Network evaluations noted in a folder."""
    path = folder / "evaluations"
    return sum(int(line) for line in path.read_text().split()) if path.exists() else 0


def left_by(folder: Path) -> dict[str, str]:
    """What must be the same after any number of kills: digests of results by file, and no leftovers."""
    return dict(_results(folder))


def _results(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors" and "/unet/" in name:  # weights; the file's metadata are the library's
            for key, array in load_file(path).items():
                yield f"{name} {key}", hashlib.sha256(array.tobytes()).hexdigest()
        elif path.is_file() and (path.suffix in _WHOLE or path.name in _EXACT):
            yield name, hashlib.sha256(path.read_bytes()).hexdigest()
        elif ".tmp" in path.name or path.name.endswith(".progress") or path.name.startswith("."):
            yield name, "left over"


_WHOLE = (".safetensors", ".txt", ".tex", ".md", ".npy", ".svg", ".html")
_EXACT = (
    "schedules.json",
    "comparison.json",
    "results.json",
    "adaptive.json",
    "front.json",
    "endpoints.json",
    "run.json",
)
COMMANDS = {
    "estimate": "dpstride estimate jobs:model jobs:data -o s.safetensors --samples 60 --batch-size 16 -q",
    "find": "dpstride find jobs:model jobs:data -o out --samples 60 --heldout-samples 60 --batch-size 16 -q",
    "mixed": "dpstride find jobs:model jobs:data -o out --samples 20 --heldout-samples 20 --batch-size 16 -q"
    " --objective mixed --trajectories 8 --budgets 4,8",
    "trajectory": "dpstride find jobs:model jobs:data -o out --samples 20 --heldout-samples 8 --batch-size 8 -q"
    " --objective trajectory --trajectories 8 --budgets 4,8",
    "study": "dpstride study jobs:model jobs:data -o out --features jobs:features --samples 30 -k 4 -k 8"
    " --choosing-samples 40 --heldout-samples 40 --batch-size 8 -q",
    "sample": "dpstride sample jobs:model ../out/schedules.json -k 30 -n 40 --batch-size 8 -o samples.npy -q",
    "train": "job training run",
}
PREPARED_BY = {"sample": "find"}  # run once, in the folder above
assert os.sep == "/"
