"""Stage 2. Models that are given some elements of a sample and predict the others: imputation, inpainting.

The network needs to know which elements it is given and their values, so both are entries of the conditioning and travel with
the sample. Nothing else is passed: x_t is noised everywhere, as in training, and the network itself inserts the values. Its
output for given elements is replaced by their values, so that every sampler leaves them unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Given:
    """Names of two entries of the conditioning: a mask, 1 where the model predicts, and the values of the other elements."""

    mask: str
    observed: str

    @classmethod
    def named(cls, mask: Any, observed: Any) -> Given | None:
        """The pair, or None for a model that predicts everything."""
        if mask is None and observed is None:
            return None
        if not isinstance(mask, str) or not isinstance(observed, str) or mask == observed:
            raise ValueError(
                "mask and observed name two entries of the conditioning: 1 where the model predicts, and the values that it is "
                f"given elsewhere. Give both, such as mask='mask', observed='observed', not {mask!r:.80} and {observed!r:.80}."
            )
        return cls(mask, observed)

    def entries(self, conditioning: Any, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Both entries for a batch of this ``shape``: True where the model predicts, and the values given elsewhere."""
        mask = self._entry(self.mask, conditioning, shape)
        if mask.is_complex() or not bool(((mask == 0) | (mask == 1)).all()):
            raise ValueError(
                f"The mask {self.mask!r} must contain only 0 and 1, with 1 where the model predicts: an element counts or "
                "it does not. Round it; give weights that the network itself needs another name."
            )
        return mask == 1, self._entry(self.observed, conditioning, shape)

    def missing(self, found: object) -> ValueError:
        """Return the error for conditioning without these entries."""
        return ValueError(
            f"This model is given some elements and predicts the others, by the entries {self.mask!r} and {self.observed!r} of "
            f"the conditioning, which must be a dict with both, not {found!s:.200}."
        )

    def describe(self) -> dict[str, str]:
        """Names, as recorded with results."""
        return {"mask": self.mask, "observed": self.observed}

    def _entry(self, name: str, conditioning: Any, shape: tuple[int, ...]) -> Tensor:
        if not isinstance(conditioning, Mapping) or name not in conditioning:
            found = sorted(map(str, conditioning)) if isinstance(conditioning, Mapping) else type(conditioning).__name__
            raise self.missing(found)
        try:
            entry = torch.as_tensor(conditioning[name]).to_dense()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"The entry {name!r} of the conditioning must be an array of numbers ({error!s:.80})."
            ) from error
        if entry.ndim != len(shape) or any(n not in (1, m) for n, m in zip(entry.shape, shape, strict=True)):
            raise ValueError(
                f"The entry {name!r} of the conditioning has shape {tuple(entry.shape)}, and the samples {shape}. Give it one "
                "number per element; axes of length 1 are broadcast."
            )
        return entry.expand(shape)


def put_into(given: tuple[Tensor, Tensor], x0_hat: Tensor, fraction: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """x̂_0 with the values of given elements, and φ = 0 there: q(x_s given x_t, x_0), since x_0 is known."""
    mask, values = given[0].to(x0_hat.device), given[1].to(x0_hat)
    return torch.where(mask, x0_hat, values), None if fraction is None else fraction.where(mask, 0.0)


def refuse_given(given: Given | None, work: str) -> None:
    """Raise if the model is given some elements, which ``work`` would compare like predicted ones."""
    if given is not None:
        raise ValueError(
            f"{work} is not for models that are given some elements and predict the others (mask={given.mask!r}): it would "
            "compare the given elements, too. Choose paths for bits/dim or for samples, with optimise or dpstride find."
        )
