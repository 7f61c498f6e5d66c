"""A diffusers folder, read before diffusers reads it, and passed on as a copy that contains data only.

diffusers and transformers import the classes that a model_index.json names, and look for weights under many names,
including pickles. Instead of guessing which files they would open, the folder is read here by our own rules, and the files
that `parts` found are put into a temporary folder, weights as safetensors. They only see this copy. Only known pipelines
made of known classes are accepted; ``trust_remote_code`` is never set.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from ..runs.writing import write_json
from .loaded import UnsupportedModelError
from .parts import Kind, Library, Part, check_inside, check_no_code, read_part

OWN = ("dpstride.integrations.openai_unet", "OpenAIUNet2DModel")  # as `save_as_diffusers` writes it
# Allowed classes of each part, by library: they read their own folder and nothing else.
UNETS = {"diffusers": ("UNet2DModel", "UNet2DConditionModel"), OWN[0]: OWN[1:]}
TRANSFORMERS = {
    "diffusers": ("DiTTransformer2DModel", "Transformer2DModel", "SD3Transformer2DModel", "FluxTransformer2DModel")
}
AUTOENCODERS = {"diffusers": ("AutoencoderKL", "AsymmetricAutoencoderKL")}
TEXT_ENCODERS = {
    "transformers": (
        *("CLIPTextModel", "CLIPTextModelWithProjection", "T5EncoderModel", "UMT5EncoderModel"),
        *("BertModel", "RobertaModel", "XLMRobertaModel"),
    )
}
TOKENIZERS = {
    "transformers": (
        *("CLIPTokenizer", "CLIPTokenizerFast", "T5Tokenizer", "T5TokenizerFast", "BertTokenizer", "BertTokenizerFast"),
        *("RobertaTokenizer", "RobertaTokenizerFast", "XLMRobertaTokenizer", "XLMRobertaTokenizerFast"),
        *("PreTrainedTokenizerFast", "TokenizersBackend"),
    )
}
PARTS: dict[str, tuple[Kind, Mapping[str, tuple[str, ...]]]] = {
    "unet": ("network", UNETS),
    "transformer": ("network", TRANSFORMERS),
    "vae": ("network", AUTOENCODERS),
    **{f"text_encoder{number}": ("network", TEXT_ENCODERS) for number in ("", "_2", "_3")},
    **{f"tokenizer{number}": ("tokenizer", TOKENIZERS) for number in ("", "_2", "_3")},
    "scheduler": (
        "scheduler",
        {"diffusers": ()},
    ),  # any class of diffusers whose name ends in Scheduler; they are JSON only
}
# Parts that no schedule needs: they are checked if present, and never loaded.
UNUSED = ("safety_checker", "feature_extractor", "image_encoder")
UNUSED_LIBRARIES = ("diffusers", "transformers", "stable_diffusion")


@contextlib.contextmanager
def clean_pipeline(folder: Path, pipelines: tuple[str, ...]) -> Iterator[Path]:
    """Yield a temporary copy of a folder of one of ``pipelines`` with data only; raise `UnsupportedModelError` otherwise."""
    with _refusing(), tempfile.TemporaryDirectory(prefix="dpstride-", ignore_cleanup_errors=True) as copy:
        index_file = folder / "model_index.json"
        check_inside(index_file, folder)
        index = read_json_object(index_file)
        check_index(index, pipelines, str(index_file))
        parts = _read_parts(folder, index)
        for name, part in parts.items():
            part.write(Path(copy) / name)
        clean = {name: value for name, value in index.items() if name in PARTS or _is_plain(value)}
        if "safety_checker" in index:
            clean["requires_safety_checker"] = False
        write_json(Path(copy) / "model_index.json", clean)
        yield Path(copy)


@contextlib.contextmanager
def clean_network(folder: Path, root: Path) -> Iterator[Path]:
    """Yield a temporary copy of the folder of one diffusers network, which is inside ``root``."""
    with _refusing(), tempfile.TemporaryDirectory(prefix="dpstride-", ignore_cleanup_errors=True) as copy:
        read_part(folder, root, "network", "diffusers").write(Path(copy) / folder.name)
        yield Path(copy) / folder.name


def check_index(index: Mapping[str, Any], pipelines: tuple[str, ...], path: str) -> None:
    """Raise unless model_index.json names a known pipeline made of parts of known classes."""
    if (found := index.get("_class_name")) not in pipelines:
        raise UnsupportedModelError(
            f"{path}: {found!r:.80} is not a pipeline that dpstride knows; it knows {', '.join(pipelines)}. If its network "
            "estimates clean data from (x, time), wrap it: dpstride.Denoiser(lambda x, time: …, process)."
        )
    check_no_code(index, path)
    for name, part in index.items():
        if isinstance(part, dict) or (name in (*PARTS, *UNUSED) and not isinstance(part, list)):
            raise UnsupportedModelError(f"{path}: the part {name!r:.80} is {part!r:.80}, not [library, class].")
        if isinstance(part, list) and not name.startswith("_") and part != [None, None]:
            _check_class(name, part, path)


def _check_class(name: str, part: list[Any], path: str) -> None:
    if name not in PARTS and name not in UNUSED:
        raise UnsupportedModelError(
            f"{path}: {name!r:.80} is not the name of a part of these pipelines, which are {', '.join(PARTS)}."
        )
    library, kind = part if len(part) == 2 and all(isinstance(each, str) for each in part) else ("", "")
    if name in UNUSED:
        known, allowed = library in UNUSED_LIBRARIES, f"from {' or '.join(UNUSED_LIBRARIES[:2])}"
    elif name == "scheduler":
        known = library == "diffusers" and kind.isidentifier() and kind.endswith("Scheduler")
        allowed = "a scheduler of diffusers"
    else:
        classes = PARTS[name][1]
        known = kind in classes.get(library, ())
        allowed = " or ".join(f"{', '.join(names)} of {module}" for module, names in classes.items())
    if not known:
        raise UnsupportedModelError(
            f"{path}: the part {name!r} is {part!r:.120}, but it must be {allowed}; code in a model's folder is not run. "
            "If you trust it, load the pipeline yourself and give the object to load_diffusers."
        )


def _read_parts(folder: Path, index: Mapping[str, Any]) -> dict[str, Part]:
    parts = {}
    for name, part in index.items():
        if name not in (*PARTS, *UNUSED) or not isinstance(part, list) or part == [None, None]:
            continue
        place = folder / name if (folder / name).is_dir() else folder  # old folders hold all parts in one
        if name in PARTS:
            library: Library = "transformers" if part[0] == "transformers" else "diffusers"
            parts[name] = read_part(place, folder, PARTS[name][0], library)
            if PARTS[name][0] == "tokenizer" and not parts[name].vocabularies:
                raise UnsupportedModelError(
                    f"{folder / name}: has no vocabulary. Save the tokenizer again with save_pretrained."
                )
        elif place != folder:
            read_part(place, folder, "unused", "transformers")
    return parts


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
    """Raise refusals of files as refusals of the model."""
    try:
        yield
    except UnreadableFileError as error:
        raise UnsupportedModelError(str(error)) from error
