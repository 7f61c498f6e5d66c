"""Embedded models: all folders under zoo/models/, as written by `dpstride train`.

The folders themselves are the list of models, so there is no second list to keep in sync.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpstride.options import MODEL_VARIANCES
from dpstride.reading.documents import read_json_object
from dpstride.reading.limits import UnreadableFileError
from dpstride.reading.text import first_line

if TYPE_CHECKING:
    from torch import Tensor, nn

    from dpstride.denoiser import Denoiser
    from dpstride.process import ForwardProcess

DESCRIPTION = "dpstride.json"
FORMAT = "dpstride-model-1"
MOST_STEPS = 1_000_000
FACTS = {
    "kind": ("discrete", "continuous"),
    "predicts": ("eps", "x0", "v", "flow"),
    "variance": MODEL_VARIANCES,
    "time_input": ("index0", "1000*time"),
}


def names() -> tuple[str, ...]:
    """Names of the embedded models, sorted."""
    root = _root()
    if not root.is_dir():
        return ()
    return tuple(sorted(folder.name for folder in root.iterdir() if (folder / DESCRIPTION).is_file()))


def describe(name: str | None = None) -> dict[str, Any]:
    """Return the dpstride.json of a model, or those of all models by name."""
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
        raise ValueError(f"There is no embedded model {name!r}. The zoo has {known}.")
    return _root() / name


def load_folder(folder: str | Path, name: str | None = None) -> Denoiser:
    """Load a folder written by `dpstride train`, embedded or not, as a `Denoiser`."""
    from dpstride.denoiser import Denoiser

    folder = Path(folder)
    facts = read_description(folder)
    unet = load_unet(folder / "unet")
    continuous = facts["kind"] == "continuous"
    try:
        size = unet.config.sample_size
        height, width = (size, size) if isinstance(size, int) else size
        return Denoiser(
            UNetCallable(unet, 1000.0 if facts["time_input"] == "1000*time" else None, facts.get("labels") or "labels"),
            process_of(facts),
            predicts=facts["predicts"],
            variance=facts["variance"],
            clip=None if facts["clip"] is None else tuple(facts["clip"]),
            shape=(unet.config.in_channels, height, width),
            trained_continuous=continuous,
            time_input="time" if continuous else "index0",
            name=name or folder.name,
        )
    except (ValueError, TypeError) as error:
        raise UnreadableFileError(
            f"{folder}: {DESCRIPTION} and unet/config.json do not describe a model ({error!s:.300}). Export the model again."
        ) from error


def load_unet(folder: Path) -> Any:
    """Load the UNet2DModel of a folder; diffusers reads a checked copy."""
    from dpstride.integrations.folders import clean_network
    from dpstride.integrations.loaded import UnsupportedModelError
    from dpstride.integrations.part_weights import check_complete
    from dpstride.zoo.library import diffusers

    if not folder.is_dir():
        raise UnreadableFileError(
            f"{folder}: this folder does not exist, so the model has no network. Export it again."
        )
    try:
        with clean_network(folder, folder.parent) as copy:
            unet = diffusers().UNet2DModel.from_pretrained(copy, local_files_only=True, use_safetensors=True)
            check_complete(unet, copy, folder)
            unet = unet.float()
            unet.register_to_config(_name_or_path=str(folder))
            return unet
    except (UnsupportedModelError, ImportError):
        raise
    except Exception as error:  # diffusers may raise anything for a wrong config
        why = first_line(error, 300)
        raise UnreadableFileError(f"{folder}: diffusers could not load it ({why}). Export the model again.") from error


def process_of(facts: dict[str, Any]) -> ForwardProcess:
    """The forward process that dpstride.json names."""
    from dpstride.process import ForwardProcess

    known = ("linear", "cosine", "vp_cosine", "vp_linear", "sub_vp", "rectified_flow")
    if facts.get("process") not in known:
        raise ValueError(
            f"The model was trained with a process of its own, {facts.get('process')!r:.80}, which files cannot store. Build "
            f"the ForwardProcess and the Denoiser in Python; by name there are {', '.join(known)}."
        )
    process: ForwardProcess = getattr(ForwardProcess, facts["process"])(facts["T"])
    return process


def read_description(folder: Path) -> dict[str, Any]:
    """dpstride.json of a model's folder, checked."""
    path = folder / DESCRIPTION
    if not path.is_file():
        raise ValueError(f"{folder} has no {DESCRIPTION}, so it was not written by `dpstride train`.")
    facts = read_json_object(path)
    if facts.get("format") != FORMAT:
        raise UnreadableFileError(
            f"{path}: format {facts.get('format')!r:.80} is not {FORMAT!r}; export the model again."
        )
    for fact, allowed in FACTS.items():
        if facts.get(fact) not in allowed:
            raise UnreadableFileError(
                f"{path}: {fact} is {facts.get(fact)!r:.80}, not one of {', '.join(allowed)}. Export the model again."
            )
    T, clip = facts.get("T"), facts.get("clip")
    if isinstance(T, bool) or not isinstance(T, int) or not 1 <= T <= MOST_STEPS:
        raise UnreadableFileError(f"{path}: T must be a whole number from 1 to {MOST_STEPS:,}, not {T!r:.80}.")
    if "clip" not in facts or not (clip is None or (isinstance(clip, list) and all(map(_is_number, clip)))):
        raise UnreadableFileError(f"{path}: clip must be null or [low, high], not {clip!r:.80}.")
    return facts


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class UNetCallable:
    """A UNet2DModel as ``network(x, time) → Tensor``, or ``network(x, time, labels)`` for class-conditional models.

    Labels are the third argument or the keyword ``key``; other conditioning is ignored, as in training. ``time_scale``
    multiplies a continuous time, which stays a float.
    """

    stateless = True  # several threads may call it

    def __init__(self, unet: nn.Module, time_scale: float | None = None, key: str = "labels") -> None:
        self.unet = unet
        self.time_scale = time_scale
        self.key = key

    def __call__(self, x: Tensor, time: Tensor, labels: Tensor | None = None, **named: Tensor) -> Tensor:
        """The network's output, a plain tensor."""
        time = time if self.time_scale is None else (self.time_scale * time.double()).to(x.dtype)
        classes: int | None = self.unet.config.num_class_embeds  # type: ignore[union-attr,assignment]
        given = self._labels(named.get(self.key, labels), classes) if classes else None
        output: Tensor = self.unet(x, time, None if given is None else given.to(x.device)).sample
        return output

    def _labels(self, labels: Tensor | None, classes: int) -> Tensor:
        if labels is None:
            raise ValueError(
                f"This model has {classes} classes and needs the label of every sample: conditioning={{{self.key!r}: …}} in "
                "Python, data with labels or --conditioning DATA on the command line."
            )
        if labels.is_floating_point() or int(labels.min()) < 0 or int(labels.max()) >= classes:
            raise ValueError(
                f"Labels must be whole numbers from 0 to {classes - 1} for this model of {classes} classes, but they are "
                f"{labels.dtype} from {labels.min().item()} to {labels.max().item()}. Give data with such labels."
            )
        return labels.long()


def _root() -> Path:
    return Path(str(files("dpstride.zoo"))) / "models"
