"""Stage 1. The forward process: two arrays, f and g, on a grid.

``q(x_t given x_0) = N(f_t x_0, g_t² I)``. Discrete DDPMs, continuous VP and sub-VP, VE and rectified flow differ only in
the numbers in these arrays, so one class covers them all. Later stages ask the process for the coefficients of a step
t → s, never for the formula behind them. Everything is float64.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from .process_rules import (
    check_grid,
    check_inside,
    check_kind,
    check_labels,
    check_no_products,
    check_T,
    numbers,
    vector,
)

Array = npt.NDArray[np.float64]
Index = int | npt.NDArray[np.int64]
TimeFunction = Callable[[Array], npt.ArrayLike]

MAX_BETA = 0.999  # Nichol and Dhariwal's clip, which keeps the last steps of a cosine process from being singular.


ARRAYS = ("f", "g", "times", "origin", "input_scale")  # of a process, as saved in files
FACTS = ("kind", "name", "origin_T", "first_pair_variance")


@dataclass(frozen=True, eq=False)
class ForwardProcess:
    """``q(x_t given x_0) = N(f_t x_0, g_t² I)`` on a grid of T + 1 points; index 0 is clean data, T the noise end.

    Build one with a class method. ``origin[i]`` is the index that grid point i had in the grid it was first built on
    (for a discrete model: its training step); it determines the time fed to the network and the noise drawn, so neither
    changes under `subset`. ``input_scale`` multiplies x_t before the network sees it (VE processes; 1 elsewhere).
    ``first_pair_variance`` is the posterior variance of training step 2 → 1, which one decoder option needs; it is None
    for continuous processes.
    """

    f: Array
    g: Array
    times: Array
    kind: Literal["discrete", "continuous"]
    name: str
    origin: npt.NDArray[np.int64]
    origin_T: int
    input_scale: Array
    first_pair_variance: float | None = None
    f_function: TimeFunction | None = field(default=None, repr=False)
    g_function: TimeFunction | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("f", "g", "times", "origin", "input_scale"):
            array = numbers(getattr(self, name), name)
            array.setflags(write=False)  # values computed from them are cached
            object.__setattr__(self, name, array)
        check_kind(self.kind, self.name, self.origin_T, self.first_pair_variance)
        check_grid(self.f, self.g, self.times)
        check_labels(self.origin, self.origin_T, self.input_scale, self.T)

    # --- constructors -----------------------------------------------------------------------------------------------

    @classmethod
    def from_alpha_bar(cls, alpha_bar: npt.ArrayLike, name: str = "alpha_bar") -> ForwardProcess:
        """Discrete variance-preserving process; ``alpha_bar[i]`` belongs to grid index i + 1 (training step i)."""
        alpha_bar = vector(alpha_bar, "alpha_bar")
        pure = "for a process that ends in pure noise (alpha_bar = 0), use from_functions."
        check_inside(alpha_bar, "alpha_bar", f"Leave out the clean point, which dpstride adds; {pure}")
        if (rises := np.flatnonzero(np.diff(alpha_bar) >= 0.0)).size:
            i = int(rises[0])
            raise ValueError(
                f"alpha_bar must be strictly decreasing, but alpha_bar[{i}] = {alpha_bar[i]} and alpha_bar[{i + 1}] = "
                f"{alpha_bar[i + 1]}. Give it from least to most noise, without repeated values."
            )
        return cls._discrete(alpha_bar, 1.0 - alpha_bar, name)

    @classmethod
    def from_betas(cls, betas: npt.ArrayLike, name: str = "betas") -> ForwardProcess:
        """Discrete variance-preserving process with ``alpha_bar[i] = prod over j <= i of (1 - betas[j])``."""
        betas = vector(betas, "betas")
        check_no_products(betas)
        check_inside(betas, "betas", "For a process that ends in pure noise (beta = 1), use from_functions.")
        log_alpha_bar = np.cumsum(np.log1p(-betas))
        if np.exp(log_alpha_bar[-1]) == 0.0:
            raise ValueError("betas are so large that alpha_bar underflows to 0; use fewer or smaller betas.")
        # 1 - alpha_bar by expm1: the first betas are 1e-4 and smaller, and g² feeds every cost near clean data.
        return cls._discrete(np.exp(log_alpha_bar), -np.expm1(log_alpha_bar), name)

    @classmethod
    def from_functions(
        cls,
        f: TimeFunction,
        g: TimeFunction,
        times: npt.ArrayLike,
        name: str = "functions",
    ) -> ForwardProcess:
        """Continuous process: any ``f`` that falls from 1 and ``g`` that rises from 0, on any grid with ``times[0] = 0``."""
        times = vector(times, "times")
        return cls(
            f=_evaluate(f, times, "f"),
            g=_evaluate(g, times, "g"),
            times=times,
            kind="continuous",
            name=name,
            origin=np.arange(times.size),
            origin_T=times.size - 1,
            input_scale=np.ones(times.size),
            f_function=f,
            g_function=g,
        )

    @classmethod
    def linear(cls, T: int = 1000) -> ForwardProcess:
        """Ho et al. (2020): betas linear from 1e-4 to 0.02, scaled by 1000/T as Nichol and Dhariwal do, and at most 0.999."""
        check_T(T)
        betas = np.linspace(1e-4, 0.02, T) * (1000.0 / T)
        return cls.from_betas(np.minimum(betas, MAX_BETA), name="linear")

    @classmethod
    def cosine(cls, T: int = 4000) -> ForwardProcess:
        """Nichol and Dhariwal (2021): alpha_bar = cos²((t/T + 0.008)/1.008 · π/2), betas clipped at 0.999."""
        check_T(T)
        alpha_bar = np.cos((np.arange(T + 1) / T + 0.008) / 1.008 * (np.pi / 2)) ** 2
        return cls.from_betas(np.minimum(1.0 - alpha_bar[1:] / alpha_bar[:-1], MAX_BETA), name="cosine")

    @classmethod
    def rectified_flow(cls, T: int = 1000, times: npt.ArrayLike | None = None) -> ForwardProcess:
        """Flow matching: ``f = 1 - t``, ``g = t``; even times unless given."""
        return cls.from_functions(lambda t: 1.0 - t, lambda t: t, _times(T, times), name="rectified_flow")

    @classmethod
    def vp_linear(
        cls,
        T: int = 1000,
        times: npt.ArrayLike | None = None,
        beta_min: float = 0.1,
        beta_max: float = 20.0,
    ) -> ForwardProcess:
        """Song et al. (2021) VP: ``f = exp(-½ B(t))``, ``g² = 1 - f²``, B the integral of a linear beta(t)."""
        integral = _integral_of_linear_beta(beta_min, beta_max)
        return cls.from_functions(
            lambda t: np.exp(-0.5 * integral(t)),
            lambda t: np.sqrt(-np.expm1(-integral(t))),
            _times(T, times),
            name="vp_linear",
        )

    @classmethod
    def vp_cosine(cls, T: int = 1000, times: npt.ArrayLike | None = None) -> ForwardProcess:
        """Continuous cosine process, Nichol and Dhariwal's alpha_bar without the clip: ``f(1) = 0`` exactly."""
        start = 0.008 / 1.008 * np.pi / 2

        def angle(t: Array) -> Array:
            return (t + 0.008) / 1.008 * (np.pi / 2)

        def f(t: Array) -> Array:
            return np.where(t == 1.0, 0.0, np.cos(angle(t)) / np.cos(start))

        def g(t: Array) -> Array:
            # 1 - f² = sin(a - b) sin(a + b) / cos²(b): no cancellation near clean data.
            return np.asarray(np.sqrt(np.sin(angle(t) - start) * np.sin(angle(t) + start)) / np.cos(start))

        return cls.from_functions(f, lambda t: np.where(t == 1.0, 1.0, g(t)), _times(T, times), name="vp_cosine")

    @classmethod
    def sub_vp(
        cls,
        T: int = 1000,
        times: npt.ArrayLike | None = None,
        beta_min: float = 0.1,
        beta_max: float = 20.0,
    ) -> ForwardProcess:
        """Song et al. (2021) sub-VP: f as in `vp_linear`, ``g = 1 - f²``."""
        integral = _integral_of_linear_beta(beta_min, beta_max)
        return cls.from_functions(
            lambda t: np.exp(-0.5 * integral(t)), lambda t: -np.expm1(-integral(t)), _times(T, times), name="sub_vp"
        )

    @classmethod
    def ve(cls, sigmas: npt.ArrayLike, name: str = "ve") -> ForwardProcess:
        """Variance exploding (x_0 + sigma noise), rescaled by ``1/sqrt(1 + sigma²)``; times are the sigmas, 0 first.

        The network is fed x_t in its own coordinates (`input_scale`). `upper` and `learned_range` variances and the
        decoder's variances are defined in the rescaled coordinates.
        """
        sigmas = vector(sigmas, "sigmas")
        process = cls.from_functions(
            lambda sigma: 1.0 / np.sqrt(1.0 + sigma**2), lambda sigma: sigma / np.sqrt(1.0 + sigma**2), sigmas, name
        )
        return process._replace(input_scale=np.sqrt(1.0 + sigmas**2))

    def subset(self, steps: Sequence[int] | npt.NDArray[np.int64]) -> ForwardProcess:
        """The same process on some of its own grid points (index 0 is kept or added).

        The time fed to the network and the noise drawn stay those of the original step, so a model is still evaluated
        only where it was trained.
        """
        array = np.asarray(steps)
        if array.ndim != 1 or array.size == 0:
            raise ValueError(f"steps must be a non-empty list of grid indices, not an array of shape {array.shape}.")
        if not np.issubdtype(array.dtype, np.integer):
            raise ValueError(
                f"steps must be whole grid indices, not {array.dtype}: a discrete model is only defined at its training "
                "steps. For a model trained on continuous times, build a grid with from_functions."
            )
        kept = np.unique(array.astype(np.int64))
        if kept[0] < 0 or kept[-1] > self.T:
            wrong = kept[0] if kept[0] < 0 else kept[-1]
            raise ValueError(
                f"steps must be grid indices of this process, 0 to {self.T}, but {wrong} is among them: the network was "
                "never trained there. Choose a subset of the training steps."
            )
        kept = np.union1d([0], kept)
        if kept.size < 2:
            raise ValueError("steps must hold at least one step above 0, but only index 0 was given.")
        return self._replace(
            f=self.f[kept],
            g=self.g[kept],
            times=self.times[kept],
            origin=self.origin[kept],
            input_scale=self.input_scale[kept],
        )

    # --- files ------------------------------------------------------------------------------------------------------

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays saved in files; with `facts` they define the whole process, except for functions of continuous time."""
        return {name: getattr(self, name) for name in ARRAYS}

    @property
    def facts(self) -> dict[str, Any]:
        """Everything else saved in files, as JSON values."""
        return {name: getattr(self, name) for name in FACTS}

    # --- properties and coefficients --------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<ForwardProcess {self.name}, {self.kind}, T = {self.T}>"

    @property
    def T(self) -> int:
        """Number of grid steps."""
        return self.f.size - 1

    @property
    def snr(self) -> Array:
        """Signal-to-noise ratio ``f²/g²`` at every grid point; infinite at index 0."""
        with np.errstate(divide="ignore"):
            return np.asarray((self.f / self.g) ** 2)

    @property
    def log_snr(self) -> Array:
        """Natural logarithm of `snr`; +inf at index 0, -inf where f = 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(2.0 * (np.log(self.f) - np.log(self.g)))

    def f_ts(self, t: Index, s: Index) -> Array:
        """``f_t / f_s``: q(x_t given x_s) has mean f_ts x_s."""
        return np.asarray(self.f[t] / self.f[s])

    def g2_ts(self, t: Index, s: Index) -> Array:
        """``g_t² - f_ts² g_s²``: the variance of q(x_t given x_s)."""
        # = g_t² (1 - snr_t / snr_s), without subtracting two nearly equal variances.
        return np.asarray(self.g[t] ** 2 * self._one_minus_snr_ratio(t, s))

    def posterior_variance(self, t: Index, s: Index) -> Array:
        """``g_s² g_ts² / g_t²``: the variance of q(x_s given x_t, x_0), method.md's g̃²."""
        return np.asarray(self.g[s] ** 2 * self._one_minus_snr_ratio(t, s))

    def posterior_mean(self, t: Index, s: Index) -> tuple[Array, Array]:
        """Coefficients (a, b) of the mean ``a x_t + b x_0`` of q(x_s given x_t, x_0), Eq. 14 of the paper."""
        a = self.f_ts(t, s) * (self.g[s] / self.g[t]) ** 2
        return np.asarray(a), np.asarray(self.f[s] * self._one_minus_snr_ratio(t, s))

    def sde(self, times: npt.ArrayLike) -> tuple[Array, Array]:
        """Drift and diffusion coefficients of Eq. 12, ``dX = drift · X dt + diffusion dB``, where f > 0.

        drift = f'/f and diffusion² = (g²)' - 2 (f'/f) g², which equals 2 g (g' - f' g / f). Derivatives are taken
        numerically from the process's own functions (scipy.differentiate), one-sided at the two ends.
        """
        if self.f_function is None or self.g_function is None:
            raise ValueError(
                f"The {self.name!r} process is known only at its grid points, so it has no derivative. Build it with "
                "from_functions (vp_linear and vp_cosine are the continuous forms of linear and cosine)."
            )
        from scipy.differentiate import derivative

        f, g = self.f_function, self.g_function
        at = np.atleast_1d(np.asarray(times, dtype=np.float64))
        end = float(self.times[-1])
        if not ((at >= 0.0) & (at <= end)).all():
            raise ValueError(f"times must lie in [0, {end}], but they span [{at.min()}, {at.max()}].")
        # The first step must stay inside the domain: f and g need not be defined outside.
        inside = np.minimum(at, end - at)
        one_sided = inside < 1e-3 * end
        step = np.where(one_sided, 1e-3 * end, np.minimum(inside, 0.05 * end))
        direction = np.where(one_sided, np.where(at < 0.5 * end, 1, -1), 0)
        options = {"initial_step": step, "step_direction": direction, "order": 8}
        values = _evaluate(f, at, "f")
        if (values <= 0.0).any():
            raise ValueError(f"The drift f'/f is not defined where f = 0 (time {at[values <= 0.0][0]}).")
        slope: Any = derivative
        drift = slope(lambda t: _evaluate(f, t, "f"), at, **options).df / values
        variance = slope(lambda t: _evaluate(g, t, "g") ** 2, at, **options).df
        diffusion = np.sqrt(np.maximum(variance - 2.0 * drift * _evaluate(g, at, "g") ** 2, 0.0))
        return np.asarray(drift), np.asarray(diffusion)

    @property
    def fingerprint(self) -> str:
        """Digest of the numbers that define the process; statistics store it, so that they are not mixed up."""
        digest = hashlib.sha256()
        for array in self.arrays.values():
            digest.update(np.ascontiguousarray(array).tobytes())
        if self.kind != "discrete" or self.origin_T != self.T:  # a whole discrete grid implies the rest
            digest.update(f"{self.kind} {self.origin_T} {self.first_pair_variance}".encode())
        return digest.hexdigest()[:16]

    def is_grid_of(self, training: ForwardProcess) -> bool:
        """Return whether every grid point of this process is a point of ``training`` with the same f and g."""
        if self.origin_T != training.origin_T:
            return False
        where = np.searchsorted(training.origin, self.origin)
        if (where > training.T).any() or (training.origin[where] != self.origin).any():
            return False
        return bool((training.f[where] == self.f).all() and (training.g[where] == self.g).all())

    # --- internals --------------------------------------------------------------------------------------------------

    def _one_minus_snr_ratio(self, t: Index, s: Index) -> Array:
        """``1 - snr_t / snr_s``, accurate when the two are close and finite at both ends of the grid."""
        ratio = (self.f[t] * self.g[s]) / (self.f[s] * self.g[t])
        return np.asarray((1.0 - ratio) * (1.0 + ratio))

    def _replace(self, **changes: object) -> ForwardProcess:
        return replace(self, **changes)  # type: ignore[arg-type]

    @classmethod
    def _discrete(cls, f2: Array, g2: Array, name: str) -> ForwardProcess:
        T = f2.size
        # g̃² of 2 → 1 is g_1² (1 - snr_2/snr_1); grid indices 1 and 2 are entries 0 and 1 of the discrete arrays.
        first_pair = float(g2[0] * (1.0 - f2[1] * g2[0] / (f2[0] * g2[1]))) if T > 1 else None
        return cls(
            f=np.sqrt(np.concatenate([[1.0], f2])),
            g=np.sqrt(np.concatenate([[0.0], g2])),
            times=np.arange(T + 1, dtype=np.float64),
            kind="discrete",
            name=name,
            origin=np.arange(T + 1),
            origin_T=T,
            input_scale=np.ones(T + 1),
            first_pair_variance=first_pair,
        )


def _integral_of_linear_beta(beta_min: float, beta_max: float) -> Callable[[Array], Array]:
    """B(t), the integral from 0 to t of beta_min + (beta_max - beta_min) t."""
    return lambda t: beta_min * t + 0.5 * (beta_max - beta_min) * t**2


def _evaluate(function: TimeFunction, times: Array, name: str) -> Array:
    if not callable(function):
        raise ValueError(f"{name} must be a function of time, not {type(function).__name__}; e.g. lambda t: 1 - t.")
    try:
        values = np.asarray(function(times), dtype=np.float64)
    except (TypeError, ValueError):  # written with math or if, so it takes one time only
        values = None
    if values is None or values.shape != times.shape:
        values = np.array([float(np.asarray(function(np.asarray(time)))) for time in times.ravel()]).reshape(
            times.shape
        )
    return values


def _times(T: int, times: npt.ArrayLike | None) -> npt.ArrayLike:
    if times is not None:
        return times
    check_T(T)
    return np.linspace(0.0, 1.0, T + 1)
