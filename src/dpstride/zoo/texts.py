"""Embedded models of tokens, and the text that they were trained on: characters of the King James Bible.

Everything is in zoo/texts/: a folder of `dpstride train masked` for each model, which is listed if it exists, and compressed
text for each half. The selection cannot be tuned: stretches evenly spaced over the half, from its beginning on.
"""

from __future__ import annotations

import lzma
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from dpstride.masked.denoiser import MaskedDenoiser

STRETCHES, STRETCH = 16, 4100  # stretches of one half, and characters of each: 512 passages of 128 in total


@dataclass(frozen=True)
class EmbeddedText:
    """One embedded half of a text."""

    source: Literal["the King James Bible"]
    half: Literal["train", "test"]

    @property
    def description(self) -> str:
        """This text in a few words."""
        half = {"train": "training", "test": "held-out"}[self.half]
        return f"text: {STRETCHES} stretches of {STRETCH:,} characters, evenly spaced over the {half} part of {self.source}"


TEXTS = {
    "kjv-train": EmbeddedText("the King James Bible", "train"),
    "kjv-test": EmbeddedText("the King James Bible", "test"),
}


def text_names() -> tuple[str, ...]:
    """Names that `load_text` takes."""
    return tuple(TEXTS)


def describe_texts() -> dict[str, str]:
    """The embedded texts by name, each in a few words."""
    return {name: text.description for name, text in TEXTS.items()}


def load_text(name: str) -> str:
    """An embedded text, one stretch to a line: see `describe_texts`."""
    if name not in TEXTS:
        raise ValueError(f"There is no embedded text {name!r:.80}; there are {', '.join(TEXTS)}.")
    return lzma.decompress((_root() / f"{name}.txt.xz").read_bytes()).decode("utf-8")


def masked_names() -> tuple[str, ...]:
    """Names of the embedded models of tokens, sorted."""
    from dpstride.zoo.characters import DESCRIPTION

    return tuple(sorted(path.parent.name for path in _root().glob(f"*/{DESCRIPTION}")))


def describe_masked(name: str) -> dict[str, Any]:
    """Return the dpstride.json of a model of tokens."""
    from dpstride.reading.documents import read_json_object
    from dpstride.zoo.characters import DESCRIPTION

    return read_json_object(masked_folder_of(name) / DESCRIPTION)


def load_masked(name: str) -> MaskedDenoiser:
    """An embedded model of tokens, ready for `optimise_masked`, `bits_per_token` and `sample_masked`."""
    from dpstride.zoo.characters import load_characters

    return load_characters(masked_folder_of(name), name)


def masked_folder_of(name: str) -> Path:
    """The folder of an embedded model of tokens, with its MODEL_CARD.md."""
    if name not in masked_names():
        raise ValueError(f"There is no embedded model of tokens {name!r:.80}. The zoo has {', '.join(masked_names())}.")
    return _root() / name


def _root() -> Path:
    return Path(str(files("dpstride.zoo"))) / "texts"
