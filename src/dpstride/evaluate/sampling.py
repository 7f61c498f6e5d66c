"""Stage 7. Samples along any path, ancestral, DDIM or DPM-Solver++ 2M; deterministic by seed, whatever the batch size."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from tqdm import tqdm

from ..denoiser import Denoiser
from ..fitted import Fitted
from ..options import Variance
from ..schedule import Schedule
from ..statistics.data import check_conditioning, slice_conditioning, tensors_in_conditioning
from ..statistics.noise import check_seed, standard_normal
from ..statistics.ode import multistep_coefficients
from .likelihood import check_batch_size, check_fitted, fitted_on, resolve_options, reverse_variance, steps_on

Sampler = Literal["ancestral", "ddim", "dpmpp_2m"]


def sample(
    denoiser: Denoiser,
    schedule: Schedule,
    n: int = 64,
    seed: int = 0,
    variance: Variance | None = None,
    conditioning: Any = None,
    batch_size: int = 64,
    sampler: Sampler | None = None,
    eta: float = 0.0,
    progress: bool = False,
) -> Tensor:
    """``n`` samples [n, *shape], float32 on the CPU: K network passes per batch; the last step returns the mean x̂_0.

    Args:
        denoiser: the model; it must know its sample shape.
        schedule: the path to walk.
        n: number of samples.
        seed: names the noise of every (step, sample); two paths from one seed start from the same noise.
        variance: reverse variance of ancestral steps; None is the schedule's own, else the model's.
        conditioning: one entry per sample, as with data.
        batch_size: samples per network pass.
        sampler: "ancestral" (x_s from p(x_s given x_t)), "ddim" (Song et al. 2021) or "dpmpp_2m" (Lu et al. 2022,
            DPM-Solver++ of second order from two x̂_0, first and last step of first order); None is what the schedule was
            made for, else "ancestral".
        eta: for "ddim", from 0 (deterministic) to 1 (the posterior variance).
        progress: show a progress bar (only ever on a terminal).
    """
    check_batch_size(batch_size)
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ValueError(f"n must be a whole number of samples, at least 1, not {n!r}.")
    chain = Chain.along(denoiser, schedule, seed, variance, sampler, eta)
    check_conditioning(conditioning, n)
    conditioning = tensors_in_conditioning(conditioning)
    results = []
    batches = range(0, n, batch_size)
    with tqdm(
        total=len(batches) * schedule.budget, desc="sample", unit=" steps", disable=None if progress else True
    ) as bar:
        for first in batches:
            count = min(batch_size, n - first)
            condition = slice_conditioning(conditioning, slice(first, first + count))
            x = chain.start(first, count)
            for step in range(chain.budget):
                x = chain.advance(x, step, first, condition)
                bar.update()
            results.append(x.float().cpu())
    return torch.cat(results)


@dataclass(frozen=True, eq=False)
class Chain:
    """A path to walk with one sampler: `start`, then `advance` once for every step.

    All that it depends on is the state x and which step and samples come next, so that it can be stopped between any two
    steps and taken up again. Between steps of "dpmpp_2m" the state is x and the last x̂_0, [n, 2, *shape].
    """

    denoiser: Denoiser
    steps: tuple[int, ...]  # grid indices of the denoiser's process
    fitted: Fitted
    seed: int
    variance: Variance
    sampler: Sampler
    eta: float

    @classmethod
    def along(
        cls,
        denoiser: Denoiser,
        schedule: Schedule,
        seed: int = 0,
        variance: Variance | None = None,
        sampler: Sampler | None = None,
        eta: float = 0.0,
    ) -> Chain:
        """Check the request and settle the options; see `sample`."""
        sampler = schedule.options.get("sampler", "ancestral") if sampler is None else sampler
        if sampler not in get_args(Sampler):
            raise ValueError(f"sampler must be 'ancestral', 'ddim' or 'dpmpp_2m', not {sampler!r:.80}.")
        if isinstance(eta, bool) or not isinstance(eta, (int, float)) or not 0.0 <= eta <= 1.0:
            raise ValueError(f"eta must lie in [0, 1], not {eta!r}.")
        if eta and sampler != "ddim":
            raise ValueError(f"eta is the noise of sampler='ddim', but the sampler is {sampler!r}. Leave eta at 0.")
        if denoiser.shape is None:
            raise ValueError("The sample shape is not known: pass shape= to Denoiser, for example shape=(3, 32, 32).")
        steps, fitted = steps_on(denoiser.process, schedule), fitted_on(denoiser.process, schedule)
        options = resolve_options(denoiser, schedule, variance)
        if sampler == "ancestral":
            check_fitted(options, fitted, decoder=False)
        return cls(denoiser, steps, fitted, check_seed(seed), options["variance"], sampler, eta)

    @property
    def budget(self) -> int:
        """Number of steps."""
        return len(self.steps) - 1

    def start(self, first: int, count: int) -> Tensor:
        """x_T of samples first … first + count − 1."""
        return self._noise("prior", 0, first, count)

    def advance(self, x: Tensor, step: int, first: int, conditioning: Any = None) -> Tensor:
        """The state of samples first, first + 1, … after step number ``step``, counted from 0 at the noise end."""
        t, s = self.steps[step], self.steps[step + 1]
        process, eta = self.denoiser.process, self.eta
        if self.sampler == "dpmpp_2m":
            return self._advance_2m(x, step, conditioning)
        prediction = self.denoiser(x, t, conditioning)
        if s == 0:
            return prediction.x0_hat
        if self.sampler == "ddim":
            noise_variance: Tensor | float = eta**2 * float(process.posterior_variance(t, s))
            direction = (x - process.f[t] * prediction.x0_hat) / process.g[t]
            x = process.f[s] * prediction.x0_hat + math.sqrt(process.g[s] ** 2 - noise_variance) * direction
        else:
            a, b = process.posterior_mean(t, s)
            noise_variance = reverse_variance(process, t, s, prediction, self.variance, self.fitted)
            x = float(a) * x + float(b) * prediction.x0_hat
        if self.sampler == "ancestral" or eta > 0.0:
            noise = self._noise("reverse", int(process.origin[t]), first, len(x))
            x = x + torch.as_tensor(noise_variance, dtype=x.dtype, device=x.device).sqrt() * noise
        return x

    def _advance_2m(self, state: Tensor, step: int, conditioning: Any) -> Tensor:
        """One step of DPM-Solver++ (2M); [n, *shape] at either end of the path, x and the last x̂_0 between."""
        t, s = self.steps[step], self.steps[step + 1]
        x, last = (state, None) if step == 0 else (state[:, 0], state[:, 1])
        x0_hat = self.denoiser(x, t, conditioning).x0_hat
        if s == 0:  # h is infinite: of first order, which is x̂_0
            return x0_hat
        before = self.steps[step - 1] if step else None
        a, b, c = map(float, multistep_coefficients(self.denoiser.process, before, t, s))
        x = a * x + b * x0_hat if last is None else a * x + b * x0_hat + c * (x0_hat - last)
        return torch.stack([x, x0_hat], dim=1)

    def _noise(self, purpose: Literal["prior", "reverse"], step: int, first: int, count: int) -> Tensor:
        shape = self.denoiser.shape
        assert shape is not None
        noise = standard_normal(self.seed, purpose, step, first, count, shape)
        return noise.to(device=self.denoiser.device, dtype=self.denoiser.algebra_dtype)
