"""The sampler of a race: a sampler of this package, or the user's own.

A user's own sampler is a function (denoiser, schedule, noise) → samples, or with a fourth argument the conditioning of the
batch. ``noise`` [n, *shape] is x_T; the schedule has ``steps``, ``times``, ``for_diffusers()``, ``for_k_diffusion()``.
All its randomness must derive from ``noise``, or samples would differ from run to run and candidates could not be
compared; `trial` tests that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from .. import samplers
from ..calling import copied
from ..evaluate.sampling import Chain
from ..options import DEFAULT_ODE_SAMPLER, EULER, Sampler
from ..runs.behaviour import Behaviour
from ..runs.numbers import check_seed
from ..statistics.noise import standard_normal
from .passes import Passes
from .trial import try_sampler

if TYPE_CHECKING:
    from ..denoiser import Denoiser
    from ..evaluate.stream import Walk
    from ..schedule import Schedule

OwnSampler = Callable[..., Tensor]


class Sampling(Protocol):
    """A way to draw samples along any schedule."""

    @property
    def words(self) -> str:
        """Its name in a sentence."""

    @property
    def cost(self) -> Passes:
        """Network evaluations per sample and step."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """Its known settings besides the name, as JSON values."""

    def walk(self, denoiser: Denoiser, schedule: Schedule, seed: int) -> Walk:
        """The chain along a schedule."""

    def behaviour(
        self, denoiser: Denoiser, schedule: Schedule, identity: Mapping[str, Any], conditioning: Any
    ) -> dict[str, Any]:
        """Record of the samples it draws along a schedule, to detect edits; raises ValueError if it is random."""


@dataclass(frozen=True)
class BuiltIn:
    """A sampler of this package; schedules carry its variance and fitted numbers."""

    sampler: Sampler = DEFAULT_ODE_SAMPLER
    eta: float = 0.0

    def __post_init__(self) -> None:
        samplers.find(self.sampler)
        samplers.check_eta(self.eta, self.sampler)

    @property
    def words(self) -> str:
        """Its name in a sentence."""
        return samplers.find(self.sampler).words + (f" with eta = {self.eta:g}" if self.eta else "")

    @property
    def cost(self) -> Passes:
        """Network evaluations per sample and step: two with a corrector, except in the last step."""
        return Passes() if samplers.find(self.sampler).correct is None else Passes(2, last=1)

    def walk(self, denoiser: Denoiser, schedule: Schedule, seed: int) -> Walk:
        """The chain along a schedule."""
        return replace(Chain.along(denoiser, schedule, seed=seed, sampler=self.sampler, eta=self.eta), paired=True)

    @property
    def settings(self) -> Mapping[str, Any]:
        """None: its name says everything."""
        return {}

    def behaviour(
        self, denoiser: Denoiser, schedule: Schedule, identity: Mapping[str, Any], conditioning: Any
    ) -> dict[str, Any]:
        """Empty: the network's behaviour says everything."""
        return {}


@dataclass(frozen=True)
class Own:
    """A user's own sampler.

    Attributes:
        function: (denoiser, schedule, noise) or (denoiser, schedule, noise, conditioning) → samples of noise's shape.
        words: its name in a sentence; the function's name when empty.
        passes: network evaluations per sample and step, by which budgets become numbers of steps.
        last: network evaluations of the last step; ``passes`` when None.
        settings: its known settings, as JSON values.
    """

    function: OwnSampler
    words: str = ""
    passes: int = 1
    last: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ValueError(
                f"A sampler must be one of {', '.join(samplers.SAMPLERS)} or a function (denoiser, schedule, noise) → "
                f"samples, not {self.function!r:.80}."
            )
        Passes(self.passes, self.last)  # raises if they are not whole numbers
        if not self.words:
            object.__setattr__(self, "words", getattr(self.function, "__name__", type(self.function).__name__))

    @property
    def cost(self) -> Passes:
        """Network evaluations per sample and step."""
        return Passes(self.passes, self.last)

    def walk(self, denoiser: Denoiser, schedule: Schedule, seed: int) -> Walk:
        """The chain along a schedule."""
        return OwnWalk(denoiser, schedule, check_seed(seed), self.function, name=self.words)

    def behaviour(
        self, denoiser: Denoiser, schedule: Schedule, identity: Mapping[str, Any], conditioning: Any
    ) -> dict[str, Any]:
        """Record of the samples from two noise samples, drawn twice and once alone."""
        walk = OwnWalk(denoiser, schedule, 0, self.function, name=self.words)
        network = Behaviour.from_dict(identity["behaviour"])
        return {"sampler_behaviour": try_sampler(walk, network, conditioning).to_dict()}


@dataclass(frozen=True, eq=False)
class OwnWalk:
    """A user's sampler as one step from noise to samples."""

    denoiser: Denoiser
    schedule: Schedule
    seed: int
    function: OwnSampler
    name: str

    @property
    def budget(self) -> int:
        """One step, whatever the function does inside."""
        return 1

    def start(self, first: int, count: int) -> Tensor:
        """x_T of samples first … first + count − 1."""
        shape = self.denoiser.shape
        assert shape is not None
        noise = standard_normal(self.seed, "prior", 0, first, count=count, shape=shape)
        return noise.to(device=self.denoiser.device, dtype=self.denoiser.algebra_dtype)

    def advance(self, state: Tensor, step: int, first: int, conditioning: Any = None) -> Tensor:
        """The user's samples, checked."""
        with torch.inference_mode():
            given = (copied(conditioning, state.device),) if takes_conditioning(self.function) else ()
            samples = self.function(self.denoiser, self.schedule, state.clone(), *given)
        if not isinstance(samples, Tensor) or samples.shape != state.shape or not samples.is_floating_point():
            found = (
                f"{tuple(samples.shape)} of {samples.dtype}" if isinstance(samples, Tensor) else type(samples).__name__
            )
            raise ValueError(
                f"The sampler {self.name!r} must return samples of the noise's shape {tuple(state.shape)}, real numbers, but "
                f"it returned {found}. Return the samples that it reaches at the end of the schedule."
            )
        if not bool(torch.isfinite(samples).all()):
            raise ValueError(
                f"The sampler {self.name!r} returned NaN or infinity along {list(self.schedule.steps)!r:.120}. Try it on this "
                "schedule alone; usually its formula fails at the first or last step."
            )
        return samples

    def identity(self) -> dict[str, Any]:
        """Everything known that samples depend on besides the model."""
        return {
            "process": self.denoiser.process.fingerprint,
            "steps": list(self.schedule.steps),
            "sampler": f"own: {self.name}",
            "seed": self.seed,
            "shape": list(self.denoiser.shape or ()),
        }


def takes_conditioning(function: OwnSampler) -> bool:
    """Return whether a user's sampler has a fourth argument that has no default or is named conditioning."""
    try:
        arguments = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    placed = [each for each in arguments if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    return any(each.default is each.empty or each.name == "conditioning" for each in placed[3:4])


def sampling_of(sampler: object, eta: float = 0.0, passes: int = 1) -> Sampling:
    """A sampler by name, or a user's own function."""
    if isinstance(sampler, (BuiltIn, Own)):
        return sampler
    if isinstance(sampler, str):
        return BuiltIn(EULER.get(sampler, sampler), eta)  # type: ignore[arg-type]  # checked there
    return Own(sampler, passes=passes)  # type: ignore[arg-type]  # checked there
