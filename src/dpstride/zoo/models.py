"""Embedded models: every folder that `dpstride train` wrote and that was put under zoo/models/.

A model is listed because its folder is there; there is no second list to fall out of step with it.
"""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dpstride.denoiser import Denoiser
    from dpstride.process import ForwardProcess

DESCRIPTION = "dpstride.json"
FORMAT = "dpstride-model-1"


def names() -> tuple[str, ...]:
    """Names of the embedded models, sorted."""
    root = _root()
    if not root.is_dir():
        return ()
    return tuple(sorted(folder.name for folder in root.iterdir() if (folder / DESCRIPTION).is_file()))


def describe(name: str | None = None) -> dict[str, Any]:
    """What dpstride.json says of a model; without a name, of every model, by name."""
    if name is None:
        return {each: read_description(folder_of(each)) for each in names()}
    return read_description(folder_of(name))


def load(name: str) -> Denoiser:
    """An embedded model, ready for `estimate`, `optimise` and `sample`."""
    return load_folder(folder_of(name), name)


def folder_of(name: str) -> Path:
    """The diffusers folder of an embedded model, with its MODEL_CARD.md."""
    if name not in names():
        known = ", ".join(names()) or "none yet: train one with `dpstride train`"
        raise ValueError(f"There is no embedded model {name!r}. The zoo holds {known}.")
    return _root() / name


def load_folder(folder: str | Path, name: str | None = None) -> Denoiser:
    """A folder written by `dpstride train`, embedded or not, as a `Denoiser`; dpstride.json says what it predicts."""
    from dpstride.denoiser import Denoiser
    from dpstride.zoo.library import diffusers

    folder = Path(folder)
    facts = read_description(folder)
    unet = diffusers().UNet2DModel.from_pretrained(folder / "unet", local_files_only=True).float()
    config = unet.config
    size = config.sample_size
    height, width = (size, size) if isinstance(size, int) else size
    continuous = facts["kind"] == "continuous"
    return Denoiser(
        UNetCallable(unet, time_scale=1000.0 if facts["time_input"] == "1000*time" else None),
        process_of(facts),
        predicts=facts["predicts"],
        variance=facts["variance"],
        clip=None if facts["clip"] is None else tuple(facts["clip"]),
        shape=(config.in_channels, height, width),
        trained_continuous=continuous,
        time_input="time" if continuous else "index0",
        name=name or folder.name,
    )


def process_of(facts: dict[str, Any]) -> ForwardProcess:
    """The forward process that dpstride.json names."""
    from dpstride.process import ForwardProcess

    known = ("linear", "cosine", "vp_cosine", "vp_linear", "sub_vp", "rectified_flow")
    if facts["process"] not in known:
        raise ValueError(
            f"The model was trained with a process of its own, {facts['process']!r}, which no file can hold. Build the "
            f"ForwardProcess and the Denoiser in Python; by name there are {', '.join(known)}."
        )
    process: ForwardProcess = getattr(ForwardProcess, facts["process"])(facts["T"])
    return process


def read_description(folder: Path) -> dict[str, Any]:
    """dpstride.json of a model's folder, checked."""
    path = folder / DESCRIPTION
    if not path.is_file():
        raise ValueError(f"{folder} has no {DESCRIPTION}, so it was not written by `dpstride train`.")
    facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if facts.get("format") != FORMAT:
        raise ValueError(f"{path}: format {facts.get('format')!r} is not {FORMAT!r}; export the model again.")
    return facts


class UNetCallable:
    """A UNet2DModel as ``network(x, time) → Tensor``; ``time_scale`` multiplies a continuous time, kept a float."""

    def __init__(self, unet: nn.Module, time_scale: float | None = None) -> None:
        self.unet = unet
        self.time_scale = time_scale

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        """The network's output, a plain tensor."""
        time = time if self.time_scale is None else (self.time_scale * time.double()).to(x.dtype)
        output: Tensor = self.unet(x, time).sample
        return output


def _root() -> Path:
    return Path(str(files("dpstride.zoo"))) / "models"
