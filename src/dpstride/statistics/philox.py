"""Stage 3. Standard normal numbers of many Philox streams, compiled: bit for bit those of numpy's Generator.

Blocks of a counter-based generator do not depend on each other, so a CPU computes several at once if they are not requested
one number at a time. Words become normal numbers by the ziggurat method (Marsaglia and Tsang, 2000) with numpy's tables,
which numba has for its own generators.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba.np.random._constants import fi_double, ki_double, wi_double, ziggurat_nor_inv_r, ziggurat_nor_r

from ..runs.kernels import compiled, intrinsic

types: Any = numba.types
Word = np.uint64
Words = npt.NDArray[np.uint64]
Stream = tuple[Word, Word, Word, Word]  # the key, and the upper half of the counter

ROUNDS = 10
BLOCKS = 64  # of four words, generated at once; they stay in the nearest cache
# Salmon et al. (2011), Philox 4×64: multipliers, and what is added to the key after each round.
MULTIPLIERS = Word(0xD2E7470EE14C6C93), Word(0xCA5A826395121157)
WEYL = Word(0x9E3779B97F4A7C15), Word(0xBB67AE8584CAA73B)
ONE, SIGN, SHIFT, LAYER, SIZE = Word(1), Word(8), Word(9), Word(0xFF), Word(2**52 - 1)
TAIL_SIGN = Word(17)  # of a number in the tail: bit 8 of its size
TAIL, BY_TAIL = float(ziggurat_nor_r), float(ziggurat_nor_inv_r)  # where the lowest layer's tail begins, and 1 over it


def fill_normal(noise: npt.NDArray[np.float64], seed: int, step: int, *, purpose: int, first_sample: int) -> None:
    """Fill ``noise`` [samples, dims]: each row from the stream of key (seed, step) and counter (·, ·, purpose, sample)."""
    _fill((Word(seed), Word(step), Word(purpose), Word(first_sample)), noise)


@cast(Callable[[Callable[..., Any]], Callable[[Word, Word], tuple[Word, Word]]], intrinsic)
def _product(typing: Any, a: Any, b: Any) -> Any:
    """Upper and lower word of a product."""

    def build(context: Any, builder: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        word, wide = ir.IntType(64), ir.IntType(128)
        product = builder.mul(*(builder.zext(each, wide) for each in arguments))
        upper = builder.lshr(product, ir.Constant(wide, 64))
        parts = [builder.trunc(each, word) for each in (upper, product)]
        return context.make_tuple(builder, signature.return_type, parts)

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), build


@compiled
def _draw(stream: Stream, block: int, words: Words) -> None:
    """Fill ``words`` from the stream, from this block on."""
    for n in range(words.size // 4):
        a, b, c, d = Word(block + n) + ONE, Word(0), stream[2], stream[3]
        key_0, key_1 = stream[0], stream[1]
        for _ in range(ROUNDS):
            (upper_0, lower_0), (upper_1, lower_1) = _product(MULTIPLIERS[0], a), _product(MULTIPLIERS[1], c)
            a, b, c, d = upper_1 ^ b ^ key_0, lower_1, upper_0 ^ d ^ key_1, lower_0
            key_0, key_1 = key_0 + WEYL[0], key_1 + WEYL[1]
        words[4 * n], words[4 * n + 1], words[4 * n + 2], words[4 * n + 3] = a, b, c, d


@compiled
def _uniform(stream: Stream, position: int) -> float:
    """The word at this position as a number in [0, 1)."""
    words = np.empty(4, dtype=np.uint64)
    _draw(stream, position // 4, words)
    return float(words[position % 4] >> Word(11)) * 2.0**-53


@compiled
def _at_edge(stream: Stream, position: int, word: Word, x: float) -> tuple[bool, float, int]:
    """Return whether a point outside its layer's rectangle is under the curve, its x, and the next position."""
    layer = word & LAYER
    if layer > Word(0):
        low, high = fi_double[layer], fi_double[layer - ONE]
        return (high - low) * _uniform(stream, position) + low < math.exp(-0.5 * x * x), x, position + 1
    while True:
        beyond = -BY_TAIL * math.log1p(-_uniform(stream, position))
        depth = -math.log1p(-_uniform(stream, position + 1))
        position += 2
        if depth + depth > beyond * beyond:
            return True, -(TAIL + beyond) if word >> TAIL_SIGN & ONE else TAIL + beyond, position


@compiled
def _fill(stream: Stream, noise: npt.NDArray[np.float64]) -> None:
    words = np.empty(4 * BLOCKS, dtype=np.uint64)
    rows, dims = noise.shape
    for row in range(rows):
        here = (stream[0], stream[1], stream[2], stream[3] + Word(row))
        position = begin = end = 0  # in the stream: of the next word, and of those at hand
        for d in range(dims):
            inside, x = False, 0.0
            while not inside:
                if position >= end:
                    begin = position - position % 4
                    end = begin + 4 * min(BLOCKS, (dims - d + 3) // 4)
                    _draw(here, begin // 4, words[: end - begin])
                word = words[position - begin]
                position += 1
                layer, size = word & LAYER, word >> SHIFT & SIZE
                x = float(size) * wi_double[layer]
                x = -x if word >> SIGN & ONE else x
                inside = size < ki_double[layer]
                if not inside:
                    inside, x, position = _at_edge(here, position, word, x)
            noise[row, d] = x
