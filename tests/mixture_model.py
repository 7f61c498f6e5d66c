"""A model and data in a folder, as a user has them: the exact denoiser of a Gaussian mixture on a short process."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpstride.zoo.mixture import mixture_data

MODEL = "from dpstride.zoo.mixture import mixture_denoiser\n\n\ndef model():\n    return mixture_denoiser(T={T})\n"


def write_mixture(folder: Path, module: str, T: int = 60, samples: int = 60) -> None:
    """MODEL is then module:model, and DATA data.npy."""
    (folder / f"{module}.py").write_text(MODEL.format(T=T), encoding="utf-8")
    np.save(folder / "data.npy", mixture_data(samples, seed=0).numpy())
