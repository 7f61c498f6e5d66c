"""Stage 4. Hand-made and published strides, with which every schedule is compared: one record per rule.

Even and quadratic strides are rules on grid indices, in exact fractions. The others are given as noise levels σ = g/f for
deterministic samplers, and mapped to the nearest grid indices in ln σ; each of these starts at T, so that all start from the
same noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .options import BEST, STRIDES, check_choice
from .process import ForwardProcess
from .runs.arguments import check_kinds
from .runs.numbers import whole_number
from .schedule import Schedule, ScheduleSet

Array = npt.NDArray[np.float64]
EDM_RANGE = (0.002, 80.0)  # Karras et al. (2022), Table 1
# Sabour, Fidler and Kreis (2024), Align Your Steps: the 10-step schedule of Stable Diffusion 1.5, from the authors' quick
# start guide (also in ComfyUI's nodes_align_your_steps.py); other numbers of steps by interpolating ln σ, as they recommend.
AYS = (14.6146412293, 6.4745760956, 3.8636745985, 2.6946151520, 1.8841921177, 1.3943805092,
       0.9642583904, 0.6523686016, 0.3977456272, 0.1515232662, 0.0291671582)  # fmt: skip


@dataclass(frozen=True)
class StrideRule:
    """A rule that makes a path of any number of steps, with its name in tables and its style in figures.

    Attributes:
        words: its name in tables.
        make: returns the path of a given number of steps.
        colour: of its curve; Okabe and Ito's palette is distinguishable with any colour vision.
        line: matplotlib's style of its curve.
        marker: matplotlib's marker of its points.
    """

    words: str
    make: Callable[[ForwardProcess, int], Schedule]
    colour: str = "#000000"
    line: str = "-."
    marker: str = "D"


def find(name: str) -> StrideRule:
    """The hand-made stride of that name."""
    check_choice("stride", name, STRIDES)
    return RULES[name]


def beside(schedules: ScheduleSet, stride: str, budget: int) -> Schedule:
    """The path of ``budget`` steps by the stride of that name: the best path, or one with its options and fitted numbers."""
    if stride == BEST:
        return schedules[budget]
    return schedules.adopt(find(stride).make(schedules.process, budget))


def even_stride(process: ForwardProcess, budget: int) -> Schedule:
    """Steps i·T/K, rounded half up, i = 1 … K."""
    T, K = _check_budget(process, budget, "even"), int(budget)
    return _stride(process, "even", _half_up(np.arange(1, K + 1) * T, K))


def quadratic_stride(process: ForwardProcess, budget: int) -> Schedule:
    """Steps (i/K)²·T, rounded half up and made strictly increasing, i = 1 … K."""
    return _quadratic(process, budget, "quadratic", tenths=10)


def quadratic_ddim_stride(process: ForwardProcess, budget: int) -> Schedule:
    """Steps (i/K)²·0.8·T: like `quadratic_stride`, but ending at 0.8·T as DDIM's own code does.

    The path starts below T, so its prior term is that of its own first step.
    """
    return _quadratic(process, budget, "quadratic_ddim", tenths=8)


def karras_stride(process: ForwardProcess, budget: int, rho: float = 7.0) -> Schedule:
    """σ_i = (σ_max^(1/ρ) + i/(K − 1) (σ_min^(1/ρ) − σ_max^(1/ρ)))^ρ over the grid's range cut to EDM's (Karras et al. 2022)."""
    _check_budget(process, budget, "karras")
    low, high = _range(process)
    return _nearest(process, np.linspace(high ** (1.0 / rho), low ** (1.0 / rho), budget) ** rho, "karras")


def log_snr_stride(process: ForwardProcess, budget: int) -> Schedule:
    """Even in log-SNR over the same range (Lu et al. 2022): σ in geometric progression, elsewhere called exponential."""
    _check_budget(process, budget, "log_snr")
    low, high = _range(process)
    return _nearest(process, np.geomspace(high, low, budget), "log_snr")


def ays_stride(process: ForwardProcess, budget: int) -> Schedule:
    """Align Your Steps' schedule of Stable Diffusion 1.5, interpolated in ln σ to K steps; its last level becomes 0.

    Its levels run from that model's noise end to its first step, so on another grid ln σ is stretched to that grid's two
    ends; as published it would start at 14.6 on a grid that goes to σ = 157.
    """
    _check_budget(process, budget, "ays")
    low, high = _range(process)
    at = np.linspace(0.0, len(AYS) - 1.0, budget + 1)[:-1]
    share = (np.log(AYS) - np.log(AYS[-1])) / (np.log(AYS[0]) - np.log(AYS[-1]))
    levels = np.log(low) + share * (np.log(high) - np.log(low))
    return _nearest(process, np.exp(np.interp(at, np.arange(len(AYS)), levels)), "ays")


RULES = {
    "even": StrideRule("even stride", even_stride, colour="#D55E00", line=":", marker="s"),
    "quadratic": StrideRule("quadratic stride", quadratic_stride, colour="#0072B2", line="--", marker="^"),
    "quadratic_ddim": StrideRule("quadratic stride of DDIM", quadratic_ddim_stride),
    "karras": StrideRule("stride of Karras et al.", karras_stride),
    "log_snr": StrideRule("log-SNR stride", log_snr_stride),
    "ays": StrideRule("Align Your Steps", ays_stride),
}


def _quadratic(process: ForwardProcess, budget: int, name: str, tenths: int) -> Schedule:
    T, K = _check_budget(process, budget, name), int(budget)
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


def _check_budget(process: ForwardProcess, budget: int, name: str) -> int:
    check_kinds(RULES[name].make, process=process)
    whole_number(budget, f"The budget must be a whole number of steps from 1 to T = {process.T}", 1, process.T)
    return process.T


def _range(process: ForwardProcess) -> tuple[float, float]:
    with np.errstate(divide="ignore"):
        sigma = process.g[1:] / process.f[1:]
    finite = sigma[np.isfinite(sigma)]
    return max(float(finite[0]), EDM_RANGE[0]), min(float(finite[-1]), EDM_RANGE[1])


def _nearest(process: ForwardProcess, sigmas: Array, name: str) -> Schedule:
    """The path through the grid points nearest to falling ``sigmas`` in ln σ, the first at T, none visited twice."""
    T, K = process.T, sigmas.size
    nearest = 1 + np.abs(-0.5 * process.log_snr[None, 1:] - np.log(sigmas)[:, None]).argmin(axis=1)
    nearest[0] = T
    place = np.arange(K)[::-1]  # number of points that must still fit below each
    rising = np.maximum(nearest, place + 1)[::-1]
    rising = np.maximum.accumulate(rising - np.arange(K)) + np.arange(K)
    falling = np.minimum(rising[::-1], T - np.arange(K))
    return Schedule(process, (*map(int, falling), 0), stride=name)
