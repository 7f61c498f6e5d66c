"""The result of every loader: a denoiser, and everything about it that the user must see before the work starts.

A foreign model says its conventions in a config that nobody reads. Each adapter writes down what it took from there and
which rule it applied where the config cannot be honoured, so that nothing is assumed in silence.
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

NOTE = 1000  # characters of a note


class UnsupportedModelError(ValueError):
    """A model that is refused: the message names the rule, what was found, and what to do."""


@dataclass(frozen=True, eq=False)
class LoadedModel:
    """A denoiser made from a foreign model.

    Attributes:
        denoiser: the model, ready for `optimise`, `estimate`, `bits_per_dim` and `sample`.
        notes: what was read from the model and which rules were applied, one sentence each.
        warnings: what the user should know before trusting a number.
        data_range: what `estimate` and `bits_per_dim` should be told about the data ("uint8", "continuous", …).
        conditioning: what must come with each sample, in words, or None.
        encode: data as the user has it → data as the denoiser takes it, None when they are the same. Called as
            ``encode(images)`` or ``encode(images, conditioning)``; returns what `estimate` takes.
        decode: samples of the denoiser → images in [−1, 1], None when they are the same.
        condition: conditions as the user has them (prompts, labels) and their number → as the denoiser takes them, None when
            they are the same.
        unit: what bits/dim are per.
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
        """Notes quote configs and names of others; they are shown on a terminal, one line each."""
        object.__setattr__(self, "notes", tuple(printable(note, NOTE) for note in self.notes))
        object.__setattr__(self, "warnings", tuple(printable(warning, NOTE) for warning in self.warnings))

    def describe(self) -> str:
        """Notes and warnings as text, one line each, for the user to read before the work starts."""
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
    """Return a loaded model of numbers; one of another kind is refused."""
    if not isinstance(loaded, LoadedModel):
        raise UnsupportedModelError(
            f"{printable(loaded.denoiser.name)} is a masked diffusion model of tokens, which only `dpstride find` and "
            "`dpstride sample` take; in Python there are optimise_masked, bits_per_token and sample_masked."
        )
    return loaded


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """diffusers and transformers draw bars as they load a model, even where no terminal is, and transformers tells of packages
    for image processors that no schedule needs.
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
    """The diffusers package, or an error that says what to install."""
    instead = "; everything that does not read diffusers models works without it"
    return require("diffusers", f"{purpose} needs diffusers", "diffusers", UnsupportedModelError, instead=instead)
