"""Orders in which the network may expect the values of a sample."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ..description import Change, Facts, Inputs


def _reversed_channels(x: Tensor) -> Tensor:
    return x.flip(1)


def _transposed(x: Tensor) -> Tensor:
    return x.transpose(-1, -2)


def _channels(inputs: Inputs, facts: Facts) -> Inputs | None:
    image = len(facts.shape) == 3 and 2 <= facts.shape[0] <= 4
    return replace(inputs, arrange=_reversed_channels) if image else None


def _rows(inputs: Inputs, facts: Facts) -> Inputs | None:
    square = len(facts.shape) == 3 and facts.shape[1] == facts.shape[2] > 1
    return replace(inputs, arrange=_transposed) if square else None


ARRANGEMENTS: tuple[Change, ...] = (
    Change("channels in reverse order (BGR)", "data.flip(1)", _channels),
    Change("rows and columns exchanged", "data.transpose(-1, -2)", _rows),
)
