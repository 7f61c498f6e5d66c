"""Models of text that are no network: held-out bits/character of n-grams and compressors."""

from __future__ import annotations

import lzma
import shutil
import subprocess
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

import dpstride
from dpstride.zoo.characters import ALPHABET, decode

Ids = npt.NDArray[np.uint8]
ORDERS = (1, 2, 3, 4, 5, 6, 7, 8)


def ngram_bits(train: Ids, heldout: Ids, orders: Iterable[int] = ORDERS) -> dict[int, float]:
    """Held-out bits/character of n-gram models of characters, by order."""
    return {order: dpstride.NgramModel.of(train, len(ALPHABET), order).bits_per_token(heldout)[0] for order in orders}


def compressor_bits(train: Ids, heldout: Ids) -> dict[str, float | None]:
    """Bits that each compressor adds per held-out character behind the training text; None where it is not installed."""
    before, after = decode(train).encode("ascii"), decode(heldout).encode("ascii")
    found: dict[str, float | None] = {}
    for name, compress in {"xz -9e": _xz, "zstd --ultra -22 --long": _zstd()}.items():
        added = None if compress is None else len(compress(before + after)) - len(compress(before))
        found[name] = None if added is None else 8.0 * added / len(after)
    return found


def _xz(text: bytes) -> bytes:
    return lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)


def _zstd() -> Callable[[bytes], bytes] | None:
    """The program, if there is one: Python has zstd from 3.14 on."""
    if (program := shutil.which("zstd")) is None:
        return None
    words = [program, "--ultra", "-22", "--long=27", "-c", "-q"]
    return lambda text: subprocess.run(words, input=text, stdout=subprocess.PIPE, check=True).stdout
