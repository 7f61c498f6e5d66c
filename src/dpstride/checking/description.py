"""Stage 3. A description of a network as data: its inputs and the reading of its output, with a name for every change.

`Inputs` determines the network's output, so changing it costs evaluations; `Reading` interprets that output, so changing it
costs none. A `Change` turns one description into another; the files of `kinds/` list them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[np.float64]
Arrangement = Callable[[Tensor], Tensor]


@dataclass(frozen=True, eq=False)
class Facts:
    """Facts about model and data that changes need; statistics of the data are per channel [C] or for all channels [1]."""

    shape: tuple[int, ...]
    levels: int | None
    low: float
    high: float
    mean: Array
    std: Array
    T: int  # training steps
    origin: npt.NDArray[np.int64]  # training step of every grid index
    times: Array  # the grid's own times
    continuous: bool
    has_modules: bool  # torch modules were found in the network


@dataclass(frozen=True, eq=False)
class Inputs:
    """Inputs of the network: ``x = input_scale (f y + g eps)`` at every grid index, and its time; y is the data in the scale
    and arrangement that the network was trained on: ``y = arrange(scale · x_0 + shift)``."""

    f: Array
    g: Array
    input_scale: Array
    time: Array
    whole: bool  # times are passed as integers
    scale: Array  # per channel, or one for all channels
    shift: Array
    arrange: Arrangement | None = None
    training: bool = False

    @property
    def log_snr(self) -> Array:
        """Log of the signal-to-noise ratio, in the data's original units; +inf at index 0."""
        with np.errstate(divide="ignore"):
            ratio = 2.0 * (np.log(self.f) - np.log(self.g))
        return np.asarray(ratio + 2.0 * float(np.log(np.abs(self.scale)).mean()))

    def is_same(self, other: Inputs, kinds_differ: bool = True) -> bool:
        """Return whether the network gets the same numbers; ``kinds_differ``: integers and floats may matter to it."""
        arrays = ("f", "g", "input_scale", "time")
        same_arrays = all(np.allclose(getattr(self, name)[1:], getattr(other, name)[1:], 1e-6, 1e-9) for name in arrays)
        same_units = all(
            np.allclose(getattr(self, name), getattr(other, name), 0.0, 0.02) for name in ("scale", "shift")
        )
        same_flags = (self.training, self.arrange) == (other.training, other.arrange)
        return same_arrays and same_units and same_flags and (self.whole == other.whole or not kinds_differ)


@dataclass(frozen=True)
class Change:
    """A change of the inputs; ``apply`` returns None if it does not apply to this model and data."""

    label: str
    remedy: str
    apply: Callable[[Inputs, Facts], Inputs | None] = field(repr=False, compare=False)
    kind: str = ""


@dataclass(frozen=True)
class Reading:
    """One way to read the network's output: ``x0_hat(output, x_t, f_t, g_t)`` in the network's own data units."""

    label: str
    remedy: str
    x0_hat: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] = field(repr=False, compare=False)
    predicts: str | None = None
    sign: float = 1.0
    half: int = 0  # half of the channels, if the network returns twice as many as the data have

    def __call__(self, output: Tensor, x_t: Tensor, f_t: Tensor, g_t: Tensor) -> Tensor:
        """x̂_0 from the part of the output that this reading uses."""
        return self.x0_hat(self.sign * output, x_t, f_t, g_t)

    @property
    def is_plain(self) -> bool:
        """Return whether it uses the first half of the channels with their original sign."""
        return self.sign > 0.0 and self.half == 0

    def turned(self) -> Reading:
        """The same reading with the opposite sign of the output."""
        return replace(
            self, sign=-self.sign, label=f"{self.label} of the opposite sign", remedy=f"{self.remedy}, output negated"
        )

    def second(self) -> Reading:
        """The same reading of the second half of the channels."""
        return replace(
            self,
            half=1,
            label=f"{self.label} in the second half of the channels",
            remedy=f"{self.remedy}, halves swapped",
        )
