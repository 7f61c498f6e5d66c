"""Scales of the data that the network may have been trained on, as affine maps of the given data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..description import Array, Change, Facts, Inputs


def _to_range(low: float, high: float) -> Callable[[Inputs, Facts], Inputs | None]:
    def apply(inputs: Inputs, facts: Facts) -> Inputs | None:
        if facts.high <= facts.low:
            return None
        scale = (high - low) / (facts.high - facts.low)
        return _mapped(inputs, np.array([scale]), np.array([low - scale * facts.low]))

    return apply


def _standardised(inputs: Inputs, facts: Facts) -> Inputs | None:
    std = float(np.sqrt((facts.std**2 + (facts.mean - facts.mean.mean()) ** 2).mean()))
    return None if std == 0.0 else _mapped(inputs, np.array([1.0 / std]), np.array([-facts.mean.mean() / std]))


def _standardised_by_channel(inputs: Inputs, facts: Facts) -> Inputs | None:
    if facts.mean.size == 1 or (facts.std == 0.0).any():
        return None
    return _mapped(inputs, 1.0 / facts.std, -facts.mean / facts.std)


def _inverted(inputs: Inputs, facts: Facts) -> Inputs | None:
    return _mapped(inputs, np.array([-1.0]), np.array([facts.low + facts.high]))


def _mapped(inputs: Inputs, scale: Array, shift: Array) -> Inputs:
    return replace(inputs, scale=scale, shift=shift)


SCALES: tuple[Change, ...] = (
    Change("data in [-1, 1]", "data scaled to [-1, 1], clip=(-1, 1)", _to_range(-1.0, 1.0)),
    Change("data in [0, 1]", "data_range=('levels', n, 0.0, 1.0), clip=(0, 1)", _to_range(0.0, 1.0)),
    Change("data in [0, 255]", "data_range=('levels', n, 0.0, 255.0), clip=(0, 255)", _to_range(0.0, 255.0)),
    Change("standardised data", "data with mean 0 and variance 1, clip=None", _standardised),
    Change("data standardised by channel", "channels with mean 0 and variance 1, clip=None", _standardised_by_channel),
    Change("inverted data", "data with black and white exchanged", _inverted),
)
