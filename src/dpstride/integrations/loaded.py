"""The result of every loader: a denoiser, and everything about it that the user must see before the work starts.

A foreign model states its conventions in a config that nobody reads. Each adapter notes what it read there and which rule
it applied if the config cannot be followed, so that nothing is assumed silently.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..denoiser import Denoiser
from ..reading.text import printable
from ..runs.extras import require

NOTE = 1000  # longest note, in characters


class UnsupportedModelError(ValueError):
    """A model that is refused: the message names the rule, what was found, and what to do."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A denoiser made from a foreign model.

    Attributes:
        denoiser: the model, ready for `optimise`, `estimate`, `bits_per_dim` and `sample`.
        notes: what was read from the model and which rules were applied, one sentence each.
        warnings: what the user should know before trusting a number.
        data_range: value range of the data for `estimate` and `bits_per_dim` ("uint8", "continuous", …).
        conditioning: the condition required with each sample, in words, or None.
        encode: the user's data → the denoiser's data; None if they are the same. Called as ``encode(images)`` or
            ``encode(images, conditioning)``; returns data for `estimate`.
        decode: samples of the denoiser → images in [−1, 1]; None if they are the same.
        condition: the user's conditions (prompts, labels) and their number → the denoiser's conditioning; None if they are
            the same.
        unit: the unit of bits/dim.
    """

    FINDING: ClassVar[str] = "dpstride.finding.job"  # the module of its main job

    denoiser: Denoiser
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    data_range: object = "uint8"
    conditioning: str | None = None
    encode: Callable[..., Any] | None = field(default=None, repr=False)
    decode: Callable[..., Any] | None = field(default=None, repr=False)
    condition: Callable[[Any, int], Any] | None = field(default=None, repr=False)
    unit: str = "bits per data dimension"

    def __post_init__(self) -> None:
        """Make notes printable, one line each: they quote foreign configs and names."""
        object.__setattr__(self, "notes", tuple(printable(note, NOTE) for note in self.notes))
        object.__setattr__(self, "warnings", tuple(printable(warning, NOTE) for warning in self.warnings))

    def describe(self) -> str:
        """Return notes and warnings as text, one line each, for the user to read before the work starts."""
        model = self.denoiser
        lines = [
            f"model: {printable(model.name)}, predicts {model.predicts}, variance {model.variance}, "
            f"clipping {'off' if model.clip is None else model.clip}",
            f"process: {printable(model.process.name)}, T = {model.process.T}",
            f"data: {self.data_range}, {self.unit}; conditioning: {self.conditioning or 'none'}",
            *self.notes,
            *(f"warning: {warning}" for warning in self.warnings),
        ]
        return "\n".join(lines)


def gaussian_only(loaded: Any) -> LoadedModel:
    """Return a loaded model of numbers; refuse a model of tokens."""
    if not isinstance(loaded, LoadedModel):
        raise UnsupportedModelError(
            f"{printable(loaded.denoiser.name)} is a masked diffusion model of tokens, which only `dpstride find` and "
            "`dpstride sample` take. In Python use optimise_masked, bits_per_token and sample_masked."
        )
    return loaded


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence diffusers and transformers while they load a model.

    Both draw progress bars even without a terminal, and transformers warns about packages for image processors that no
    schedule needs.
    """
    with contextlib.ExitStack() as stack:
        for name in ("diffusers", "transformers"):
            if name not in sys.modules:
                continue
            logging = sys.modules[name].utils.logging
            if logging.is_progress_bar_enabled():
                logging.disable_progress_bar()
                stack.callback(logging.enable_progress_bar)
            if name == "transformers":
                stack.callback(logging.set_verbosity, logging.get_verbosity())
                logging.set_verbosity_error()
        yield


def require_diffusers(purpose: str) -> Any:
    """Return the diffusers package, or raise an error that says what to install."""
    instead = "; everything that does not read diffusers models works without it"
    return require("diffusers", f"{purpose} needs diffusers", "diffusers", UnsupportedModelError, instead=instead)
