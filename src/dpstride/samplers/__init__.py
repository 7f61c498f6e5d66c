"""Stage 3. Samplers: one file each, with the rule for x_s from x_t and what it needs.

A step is a pure function of states and outputs, tensors or arrays alike. `dpstride.sample`, streams of samples,
`DPStrideScheduler` and the trajectories behind the costs of deterministic samplers all call the same functions; they differ in
where noise comes from and how a state is stored. The last step, to clean data, is x̂_0 with every sampler.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from ..options import SAMPLERS, check_choice
from ..process import ForwardProcess


@dataclass(frozen=True, eq=False, kw_only=True)
class Move:
    """One step t → s > 0 of a path, and everything that a sampler may need for it.

    Attributes:
        process: the grid.
        t: index where the step starts.
        s: index where it ends.
        before: index where the step before started; None at the first step of a path.
        x: x_t.
        x0_hat: x̂_0(x_t, t), clipped where the model clips.
        towards: the x̂_0 that determines the direction of the step; ``x0_hat`` when None.
        last: x̂_0 of the step before; None at the first step of a path.
        variance: reverse variance of the step, a number or one per element.
        eta: 0 (deterministic) to 1 (the posterior variance).
    """

    process: ForwardProcess
    t: int
    s: int
    x: Any
    x0_hat: Any
    before: int | None = None
    towards: Any = None
    last: Any = None
    variance: Any = None
    eta: float = 0.0


@dataclass(frozen=True, kw_only=True)
class InDiffusers:
    """The diffusers scheduler that takes the same steps on the path of a discrete model.

    Attributes:
        scheduler: its class.
        takes: the list that it takes, of training steps or of noise levels with the final 0.
        settings: entries of its config that must not come from another pipeline, as Python source.
    """

    scheduler: str
    takes: Literal["timesteps", "sigmas"]
    settings: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SamplerRule:
    """A sampler, almost as data.

    Attributes:
        words: its name in a sentence.
        step: returns x_s without noise, and the variance of the noise to add to it or None.
        takes_variance: ``Move.variance`` is read, so the options and fitted numbers of a schedule matter.
        takes_eta: ``Move.eta`` is read.
        remembers: ``Move.before`` and ``Move.last`` are read, so the costs of its steps depend on the step before.
        correct: returns x_s again, from the x_s of ``step`` and x̂_0 there, a second evaluation; None for samplers with one.
        in_diffusers: its equivalent in diffusers, with the posterior variance and without ``eta``.
    """

    words: str
    step: Callable[[Move], tuple[Any, Any]]
    takes_variance: bool = False
    takes_eta: bool = False
    remembers: bool = False
    correct: Callable[[Move, Any, Any], Any] | None = None
    in_diffusers: InDiffusers | None = None


def find(name: str) -> SamplerRule:
    """The sampler of that name, from its own file."""
    check_choice("sampler", name, SAMPLERS)
    rule: SamplerRule = import_module(f".{name}", __name__).RULE
    return rule


def check_eta(eta: float, name: str | None = None) -> None:
    """Raise unless this sampler (any, if None) accepts that eta."""
    if isinstance(eta, bool) or not isinstance(eta, (int, float)) or not 0.0 <= eta <= 1.0:
        raise ValueError(f"eta must lie in [0, 1], not {eta!r}.")
    if eta and name is not None and not find(name).takes_eta:
        raise ValueError(f"eta is the noise of sampler={with_eta()}, but the sampler is {name!r}. Leave eta at 0.")


def with_eta() -> str:
    """The samplers that have an eta, in words."""
    return " or ".join(repr(name) for name in SAMPLERS if find(name).takes_eta)
