"""MODEL and TEXT of `dpstride unmask`: which way in a text means, decided by what it looks like and nothing else.

A folder with dpstride.json is one of `dpstride train masked`, any other folder a masked language model of transformers, and
``package.module:function`` the user's own code, the one case that runs any.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..masked.denoiser import MaskedDenoiser
from ..masked.tokens import Tokens
from ..reading.arrays import read_npy
from ..reading.plain import read_text
from ..statistics.files import import_function
from ..zoo.characters import DESCRIPTION, load_characters, passages
from .loaded import UnsupportedModelError
from .masked_lm import LoadedMaskedModel, load_masked_lm


@dataclass(frozen=True, eq=False)
class MaskedSource:
    """A model and, where it has a tokenizer, how it takes plain text."""

    denoiser: MaskedDenoiser
    tokenize: Callable[[str], Tokens] | None = None

    def read(self, text: str) -> Tokens:
        """Data: a text file or a folder of .txt files, token ids as .npy [N, length], or ``package.module:function``."""
        path = Path(text)
        if path.suffix == ".npy" and path.is_file():
            return Tokens.of(read_npy(path))
        if not path.exists() and ":" in text:
            return Tokens.read(import_function(text)())
        if self.tokenize is None:
            raise ValueError(
                f"{text}: this model has no tokenizer, so it takes token ids: a .npy file [N, length], or "
                "package.module:function that returns them."
            )
        return self.tokenize(read_text(path))


def load_masked_source(model: str) -> MaskedSource:
    """The model of a folder, or of ``package.module:function`` that returns a `MaskedDenoiser`."""
    path = Path(model)
    if (path / DESCRIPTION).is_file():
        denoiser = load_characters(path)
        return MaskedSource(denoiser, lambda text: Tokens.of(passages(text, denoiser.length)))
    if path.is_dir():
        return _of(load_masked_lm(path))
    if ":" not in model:
        raise UnsupportedModelError(f"{model}: there is no such folder, and it is not package.module:function either.")
    found = import_function(model)()
    if isinstance(found, LoadedMaskedModel):
        return _of(found)
    if not isinstance(found, MaskedDenoiser):
        raise UnsupportedModelError(f"{model} must return a dpstride.MaskedDenoiser, not {type(found).__name__}.")
    return MaskedSource(found)


def _of(loaded: LoadedMaskedModel) -> MaskedSource:
    """One sample for every line that is not empty."""

    def tokenize(text: str) -> Tokens:
        return loaded.encode([line for line in text.splitlines() if line.strip()])

    return MaskedSource(loaded.denoiser, None if loaded.tokenizer is None else tokenize)
