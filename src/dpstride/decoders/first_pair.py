"""Stage 5. Decoder variance g̃² of the training grid's step 2 → 1 at its first step, else g_t²: Analytic-DPM's table."""

from __future__ import annotations

from ..fitted import Fitted
from ..process import ForwardProcess
from . import DecoderVariance


def _value(process: ForwardProcess, t: int, t2: int | None, fitted: Fitted) -> float:
    if process.origin[t] != 1:
        return float(process.g[t] ** 2)
    if process.first_pair_variance is None:
        raise ValueError("decoder='first_pair' needs a training grid of at least two steps.")
    return process.first_pair_variance


def _check(process: ForwardProcess) -> None:
    if process.kind != "discrete":
        raise ValueError(
            "decoder='first_pair' is defined by steps 2 → 1 of a discrete training grid, and this process is "
            "continuous. Use 'upper' or 'optimal'."
        )


DECODER = DecoderVariance(_value, is_upper=lambda process, t: bool(process.origin[t] != 1), check=_check)
