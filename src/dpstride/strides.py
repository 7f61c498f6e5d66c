"""Stage 4. Strides made by hand, with which every schedule is compared: even and quadratic."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .process import ForwardProcess
from .runs.numbers import whole_number
from .schedule import Schedule


def even_stride(process: ForwardProcess, budget: int) -> Schedule:
    """Steps i·T/K, rounded half up, i = 1 … K."""
    T, K = _check_budget(process, budget), int(budget)
    return _stride(process, "even", _half_up(np.arange(1, K + 1) * T, K))


def quadratic_stride(process: ForwardProcess, budget: int) -> Schedule:
    """Steps (i/K)²·T, rounded half up and made strictly increasing, i = 1 … K."""
    return _quadratic(process, budget, "quadratic", tenths=10)


def quadratic_ddim_stride(process: ForwardProcess, budget: int) -> Schedule:
    """Steps (i/K)²·0.8·T: like `quadratic_stride`, but ending at 0.8·T as DDIM's own code does.

    The path starts below T, so its prior term is that of its own first step.
    """
    return _quadratic(process, budget, "quadratic_ddim", tenths=8)


def _quadratic(process: ForwardProcess, budget: int, name: str, tenths: int) -> Schedule:
    T, K = _check_budget(process, budget), int(budget)
    return _stride(process, name, _half_up(np.arange(1, K + 1) ** 2 * (tenths * T), 10 * K**2))


def _half_up(numerator: npt.NDArray[np.int64], denominator: int) -> npt.NDArray[np.int64]:
    """floor(numerator/denominator + ½) in whole numbers: (i/K)²·T is often exactly half-way, which floats miss."""
    return (2 * numerator + denominator) // (2 * denominator)


def _stride(process: ForwardProcess, name: str, ascending: npt.NDArray[np.int64]) -> Schedule:
    place = np.arange(ascending.size + 1)
    # Strictly increasing: step i is at least i − j above step j, so the surplus over the place never falls.
    steps = np.maximum.accumulate(np.append(0, ascending) - place) + place
    if steps[-1] > process.T:
        raise ValueError(
            f"The {name} stride has no room for {len(ascending)} different steps on a grid of {process.T}: its steps end "
            f"at {steps[-1]}. Ask for fewer steps."
        )
    return Schedule(process, tuple(steps[::-1].tolist()), stride=name)


def _check_budget(process: ForwardProcess, budget: int) -> int:
    whole_number(budget, f"The budget must be a whole number of steps from 1 to T = {process.T}", 1, process.T)
    return process.T
