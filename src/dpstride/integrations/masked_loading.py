"""Models of tokens on the command line: how they are recognised, and how they read text.

A folder is recognised as one of `dpstride train masked` by its dpstride.json, as a masked language model by its config of
transformers; ``package.module:function`` may return a `MaskedDenoiser` or a result of `load_masked_lm`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ..masked.denoiser import MaskedDenoiser
from ..masked.tokens import Tokens
from ..reading.arrays import read_npy
from ..reading.documents import read_json_object
from ..reading.hints import path_hint
from ..reading.plain import read_text
from ..statistics.files import import_function
from .masked_lm import LoadedMaskedModel, load_masked_lm

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class MaskedSource:
    """A model and, if it has a tokenizer, its functions from and to plain text."""

    FINDING: ClassVar[str] = "dpstride.finding.masked"  # the module of its main job

    denoiser: MaskedDenoiser
    tokenize: Callable[[str], Tokens] | None = None
    decode: Callable[[Tensor], list[str]] | None = None

    def read(self, data: Any) -> Tokens:
        """Read data: text, a folder of .txt files, an embedded text, token ids as .npy [N, length], a function, or tokens."""
        if not isinstance(data, (str, os.PathLike)):
            return Tokens.read(data)
        from ..zoo.texts import load_text, text_names

        text, path = os.fspath(data), Path(data)
        if path.suffix == ".npy":
            if not path.is_file():
                raise ValueError(f"{text}: there is no such file.{path_hint(path)}")
            return Tokens.of(read_npy(path))
        if not path.exists() and ":" in text:
            return Tokens.read(import_function(text)())
        if self.tokenize is None:
            raise ValueError(
                f"{text}: this model has no tokenizer, so it takes token ids: a .npy file [N, length], or "
                "package.module:function that returns them."
            )
        return self.tokenize(load_text(text) if text in text_names() else read_text(path))


def masked_folder(path: Path) -> MaskedSource | None:
    """Load the model in a folder if it is a model of tokens, else return None."""
    from ..zoo.characters import DESCRIPTION, FORMAT

    if (path / DESCRIPTION).is_file():
        return characters_source(path) if read_json_object(path / DESCRIPTION).get("format") == FORMAT else None
    config = path / "config.json"
    if not config.is_file() or (path / "model_index.json").exists() or "model_type" not in read_json_object(config):
        return None
    return source_of(load_masked_lm(path))


def source_of(model: Any) -> MaskedSource | None:
    """Return an object as a source if it is a model of tokens, else None."""
    if isinstance(model, MaskedDenoiser):
        return MaskedSource(model)
    if isinstance(model, LoadedMaskedModel):
        return _of(model)
    return model if isinstance(model, MaskedSource) else None


def characters_source(path: Path) -> MaskedSource:
    """Load a model of `dpstride train masked`, which takes text as passages of its length."""
    from ..zoo.characters import decode, load_characters, passages

    denoiser = load_characters(path)
    return MaskedSource(
        denoiser,
        lambda text: Tokens.of(passages(text, denoiser.length)),
        lambda samples: [decode(sample) for sample in samples.tolist()],
    )


def _of(loaded: LoadedMaskedModel) -> MaskedSource:
    """Return a source whose samples are the non-empty lines of a text."""

    def tokenize(text: str) -> Tokens:
        return loaded.encode([line for line in text.splitlines() if line.strip()])

    return (
        MaskedSource(loaded.denoiser)
        if loaded.tokenizer is None
        else MaskedSource(loaded.denoiser, tokenize, loaded.decode)
    )
