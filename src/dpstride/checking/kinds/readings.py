"""Readings of the network's output, each a formula for x̂_0 (method.md, section 2)."""

from __future__ import annotations

from ..description import Reading

READINGS: tuple[Reading, ...] = (
    Reading("predicts='eps'", "predicts='eps'", lambda out, x, f, g: (x - g * out) / f, "eps"),
    Reading("predicts='x0'", "predicts='x0'", lambda out, x, f, g: out, "x0"),
    Reading("predicts='v'", "predicts='v'", lambda out, x, f, g: (f * x - g * out) / (f**2 + g**2), "v"),
    Reading("predicts='flow'", "predicts='flow'", lambda out, x, f, g: (x - g * out) / (f + g), "flow"),
    Reading(
        "the output is the score (−ε/g)",
        "predicts='eps' with the network wrapped as −g · output",
        lambda out, x, f, g: (x + g**2 * out) / f,
    ),
)


def readings_for(learned: bool) -> tuple[Reading, ...]:
    """Every reading with both signs and, with a learned variance, of both halves of the channels."""
    signed = (*READINGS, *(reading.turned() for reading in READINGS))
    return (*signed, *(reading.second() for reading in signed)) if learned else signed
