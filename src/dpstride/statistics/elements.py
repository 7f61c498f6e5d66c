"""Stage 3. Elements of samples that count: all of them, or those that a model predicts where it is given the others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from torch import Tensor


@dataclass(frozen=True)
class Elements:
    """Elements of some samples that count: all of [n, dims], or those where ``mask`` is True, one per row [m, 1]."""

    mask: Tensor | None

    def of(self, values: Tensor) -> Tensor:
        """The ``values`` [n, dims] of elements that count."""
        return values if self.mask is None else values[self.mask][:, None]

    def blocks(self, block: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The block of each row, from that of each sample."""
        return block if self.mask is None else np.repeat(block, self.mask.sum(1).cpu().numpy())

    def sums(self, values: Tensor) -> Tensor:
        """Sums per sample of values from `of`."""
        if self.mask is not None:
            values = values.new_zeros(self.mask.shape).masked_scatter(self.mask, values)
        return values.sum(1)
