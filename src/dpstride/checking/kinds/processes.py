"""The usual forward processes, on the training steps or times of the declared one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...process import ForwardProcess
from ..description import Array, Change, Facts, Inputs


def _from_process(
    discrete: Callable[[int], ForwardProcess], continuous: Callable[[Array], ForwardProcess] | None = None
) -> Callable[[Inputs, Facts], Inputs | None]:
    """A change to another process, made for T training steps, or for the grid's own times in [0, 1]."""

    def apply(inputs: Inputs, facts: Facts) -> Inputs | None:
        if facts.continuous:
            if continuous is None or facts.times[-1] > 1.0:
                return None
            process = continuous(facts.times)
            return replace(inputs, f=process.f, g=process.g, input_scale=process.input_scale)
        process = discrete(facts.T)
        return replace(
            inputs, f=process.f[facts.origin], g=process.g[facts.origin], input_scale=np.ones(facts.origin.size)
        )

    return apply


def scaled_linear(T: int) -> ForwardProcess:
    """Stable Diffusion's betas: linear in their square roots from 0.00085 to 0.012 (scaled to T like `linear`)."""
    betas = np.linspace(0.00085**0.5, 0.012**0.5, T) ** 2 * (1000.0 / T)
    return ForwardProcess.from_betas(np.minimum(betas, 0.999), name="scaled_linear")


def _continuous_scaled_linear(times: Array) -> ForwardProcess:
    """The same in continuous time: log alpha_bar = −1000 ∫ beta, where beta is the square of a line."""
    first, last = 0.00085**0.5, 0.012**0.5

    def integral(u: Array) -> Array:
        return np.asarray(1000.0 * ((first + (last - first) * u) ** 3 - first**3) / (3.0 * (last - first)))

    return ForwardProcess.from_functions(
        lambda u: np.exp(-0.5 * integral(u)), lambda u: np.sqrt(-np.expm1(-integral(u))), times
    )


def _sigmoid(u: Array) -> tuple[Array, Array]:
    """The sigmoid schedule of Jabri et al. (2022) from −3 to 3, the default of denoising-diffusion-pytorch."""
    low, high = (1.0 / (1.0 + np.exp(-x)) for x in (-3.0, 3.0))
    alpha_bar = np.clip((high - 1.0 / (1.0 + np.exp(3.0 - 6.0 * u))) / (high - low), 0.0, 1.0)
    return np.sqrt(alpha_bar), np.sqrt(1.0 - alpha_bar)


def _shifted_flow(shift: float) -> Callable[[Array], tuple[Array, Array]]:
    def coefficients(u: Array) -> tuple[Array, Array]:
        u = shift * u / (1.0 + (shift - 1.0) * u)
        return 1.0 - u, u

    return coefficients


def _of_share(coefficients: Callable[[Array], tuple[Array, Array]]) -> Callable[[Inputs, Facts], Inputs | None]:
    """A change to f and g as functions of relative time, from 0 (clean data) to 1 (noise)."""

    def apply(inputs: Inputs, facts: Facts) -> Inputs | None:
        if facts.continuous and facts.times[-1] > 1.0:
            return None
        f, g = coefficients(facts.times if facts.continuous else facts.origin / facts.T)
        return replace(inputs, f=f, g=g, input_scale=np.ones(f.size))

    return apply


def _zero_terminal(change: Callable[[Inputs, Facts], Inputs | None]) -> Callable[[Inputs, Facts], Inputs | None]:
    """The process rescaled to end in pure noise (Lin et al. 2023): sqrt(alpha_bar) shifted to 0 at T, kept at step 1."""

    def apply(inputs: Inputs, facts: Facts) -> Inputs | None:
        changed = change(inputs, facts)
        if changed is None or changed.f[-1] < 1e-9 or not np.allclose(changed.f**2 + changed.g**2, 1.0):
            return None
        f = changed.f.copy()
        f[1:] = (f[1:] - f[-1]) * f[1] / (f[1] - f[-1])
        return replace(changed, f=f, g=np.sqrt(1.0 - f**2))

    return apply


_linear = _from_process(ForwardProcess.linear, lambda times: ForwardProcess.vp_linear(times=times))
_scaled = _from_process(scaled_linear, _continuous_scaled_linear)

PROCESSES: tuple[Change, ...] = (
    Change("linear process", "ForwardProcess.linear(T), in continuous time vp_linear", _linear),
    Change(
        "cosine process",
        "ForwardProcess.cosine(T), in continuous time vp_cosine",
        _from_process(ForwardProcess.cosine, lambda times: ForwardProcess.vp_cosine(times=times)),
    ),
    Change("scaled linear process", "ForwardProcess.from_betas(linspace(0.00085**0.5, 0.012**0.5, T)**2)", _scaled),
    Change(
        "sigmoid process", "ForwardProcess.from_alpha_bar with the sigmoid schedule of training", _of_share(_sigmoid)
    ),
    Change("flow process", "ForwardProcess.rectified_flow(T)", _of_share(_shifted_flow(1.0))),
    Change(
        "flow process with shift 3", "ForwardProcess.from_functions, t' = 3t/(1 + 2t)", _of_share(_shifted_flow(3.0))
    ),
    Change(
        "sub-VP process",
        "ForwardProcess.sub_vp",
        _from_process(
            lambda T: ForwardProcess.sub_vp(T),
            lambda times: ForwardProcess.sub_vp(times=times),
        ),
    ),
    Change(
        "declared process with zero terminal SNR", "betas rescaled to zero terminal SNR", _zero_terminal(lambda i, _: i)
    ),
    Change(
        "linear process with zero terminal SNR", "linear betas rescaled to zero terminal SNR", _zero_terminal(_linear)
    ),
    Change(
        "scaled linear process with zero terminal SNR",
        "scaled linear betas rescaled to zero terminal SNR",
        _zero_terminal(_scaled),
    ),
)
