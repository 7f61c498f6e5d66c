"""The mode of the network's modules: dropout and batch statistics differ between training and evaluation."""

from __future__ import annotations

from dataclasses import replace

from ..description import Change, Facts, Inputs


def _training(inputs: Inputs, facts: Facts) -> Inputs | None:
    return replace(inputs, training=True) if facts.has_modules else None


MODES: tuple[Change, ...] = (
    Change("network in training mode", "a check of its running statistics (batch normalisation)", _training),
)
