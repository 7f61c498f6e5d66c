"""Stage 5. Reverse variances: one file each, with everything that the method needs to know about it.

With e = x_0 − x̂_0, Δ = snr_s − snr_t and δ = ln(g_t²/g_s²), the divergence of the two Gaussians of a step t → s, s > 0, has a
closed form in statistics of t alone (method.md, section 3), so one network pass per t serves every s. A file named as in
`options.VARIANCES` defines ``VARIANCE``; nothing else knows the name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..fitted import Fit, Fitted
from ..process import ForwardProcess

Array = npt.NDArray[np.float64]
Index = int | npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps from ``t`` to ``s`` > 0, which broadcast against each other."""

    process: ForwardProcess
    dims: Any  # a number, or one per unit
    t: Index
    s: Index

    @cached_property
    def Delta(self) -> Array:
        """Δ = snr_s − snr_t."""
        return snr_difference(self.process, self.t, self.s)

    @cached_property
    def delta(self) -> Array:
        """δ = ln(g_t²/g_s²)."""
        return np.asarray(-2.0 * np.log(self.process.g[self.s] / self.process.g[self.t]))


@dataclass(frozen=True)
class Errors:
    """Means of the network's errors at t, over all samples or those of a unit; they broadcast against the steps.

    Attributes:
        squared_error: Σ e².
        fraction: Σ φ; like the next two only if the variance is learned.
        decay: Σ exp(−φδ).
        weighted: Σ e² exp(−φδ).
    """

    squared_error: Any = None
    fraction: Any = None
    decay: Any = None
    weighted: Any = None


class Value(Protocol):
    """The variance of p(x_s given x_t): a number, or one per element of φ, ``fraction``."""

    def __call__(self, process: ForwardProcess, t: int, s: int, fraction: Any, fitted: Fitted) -> Any:
        """Return it; ``fraction`` is None unless the network predicts it."""


@dataclass(frozen=True)
class ReverseVariance:
    """Record of one reverse variance.

    Attributes:
        nats: cost of steps given errors, L(t, s); without ``learned`` it is linear in Σ e².
        value: variance of p(x_s given x_t), for evaluator and samplers.
        learned: it reads φ, the network's prediction of the variance.
        fit: numbers that are fitted for it, if any.
        in_lines: costs are ½ Δ E Σ e², lines in snr, so that fine grids need no table.
    """

    nats: Callable[[Steps, Errors, Fitted], Array]
    value: Value
    learned: bool = False
    fit: Fit | None = None
    in_lines: bool = False

    @property
    def unread(self) -> tuple[str, ...]:
        """Fields of statistics that it does not read."""
        return () if self.learned else ("fraction_bins", "fraction_blocks", "fraction_sum")


def find(name: str) -> ReverseVariance:
    """The reverse variance of that name."""
    found: ReverseVariance = import_module(f"{__name__}.{name}").VARIANCE
    return found


def snr_difference(process: ForwardProcess, t: Index, s: Index) -> Array:
    """Δ = snr_s − snr_t."""
    return np.asarray(process.posterior_mean(t, s)[1] * process.f[s] / process.g[s] ** 2)
