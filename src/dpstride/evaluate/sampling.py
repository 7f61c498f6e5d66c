"""Stage 7. Samples along any path, by any of the `samplers`; determined by the seed, whatever the batch size."""

from __future__ import annotations

import hashlib
from concurrent.futures import CancelledError
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor

from .. import samplers, variances
from ..denoiser import Denoiser
from ..fitted import Fitted
from ..options import Sampler, SamplerChoice, Variance
from ..runs.arguments import check_kinds, check_names, spelt_out
from ..runs.bars import progress_bar
from ..runs.numbers import check_batch_size, check_seed, whole_number
from ..runs.storage import Arrays
from ..runs.workers import in_threads
from ..schedule import Schedule
from ..statistics.data import check_conditioning, slice_conditioning, tensors_in_conditioning
from ..statistics.noise import standard_normal
from .likelihood import check_fitted, fitted_on, resolve_options, steps_on, warn_about_other_clipping


@spelt_out(SamplerChoice)
def sample(
    denoiser: Denoiser,
    schedule: Schedule,
    n: int = 64,
    seed: int = 0,
    *,
    conditioning: Any = None,
    batch_size: int = 64,
    progress: bool = False,
    **chosen: Unpack[SamplerChoice],
) -> Tensor:
    """``n`` samples [n, *shape], float32 on the CPU: K network passes per batch (Heun: 2K − 1); the last step returns x̂_0.

    Args:
        denoiser: the model; it must know its sample shape.
        schedule: the path to follow.
        n: number of samples.
        seed: random seed of the noise of every (step, sample); two paths from one seed start from the same noise.
        variance: reverse variance of ancestral steps; when None the schedule's own, else the model's.
        conditioning: one entry per sample, as with data.
        batch_size: samples per network pass. Batches run one per core if the network allows it (`Denoiser.at_once`);
            samples are the same whatever the number of cores.
        sampler: "ancestral" (x_s from p(x_s given x_t)), "ddim" (Song et al. 2021), "dpmpp_2m" (Lu et al. 2022,
            DPM-Solver++ of second order from two x̂_0, first and last step of first order) or "heun" (Karras et al. 2022, two
            network passes in every step but the last); when None the one that the schedule was made for, else "ancestral".
        eta: for "ddim", from 0 (deterministic) to 1 (the posterior variance); when None the schedule's own, else 0.
        progress: show a progress bar (only ever on a terminal).
    """
    check_kinds(sample, denoiser=denoiser, schedule=schedule)
    check_names(sample, chosen, SamplerChoice)
    check_batch_size(batch_size)
    whole_number(n, "n must be a whole number of samples, at least 1")
    chain = Chain.along(denoiser, schedule, seed=seed, **chosen)
    check_conditioning(conditioning, n)
    conditioning = tensors_in_conditioning(conditioning)
    batches, stopped, lock = range(0, n, batch_size), Event(), Lock()

    def walk(first: int) -> Arrays:
        count = min(batch_size, n - first)
        condition = slice_conditioning(conditioning, slice(first, first + count))
        x = chain.start(first, count)
        for step in range(chain.budget):
            if stopped.is_set():
                raise CancelledError
            x = chain.advance(x, step, first, condition)
            with lock:
                bar.update()
        return {"x": x.float().cpu().numpy()}

    with progress_bar(len(batches) * schedule.budget, "sample", " steps", progress) as bar:
        drawn = dict(in_threads(walk, batches, denoiser.at_once, stopped.set, hands_over=denoiser.waits))
    return torch.cat([torch.from_numpy(drawn[first]["x"]) for first in batches])


@dataclass(frozen=True, eq=False, kw_only=True)
class Chain:
    """A path to follow with one sampler: `start`, then `advance` once for every step.

    It depends only on the state x and on the next step and samples, so it can be stopped between any two steps and resumed.
    Between steps of a sampler with memory the state is x and the last x̂_0, [n, 2, *shape]. The noise of a step is keyed by
    the grid index where it starts, so that a path's samples do not depend on what else is drawn; ``paired`` keys it by the
    number of the step, so that paths with the same number of steps share all their noise.
    """

    denoiser: Denoiser
    steps: tuple[int, ...]  # grid indices of the denoiser's process
    fitted: Fitted
    seed: int
    variance: Variance
    sampler: Sampler
    eta: float
    paired: bool = False

    @classmethod
    def along(
        cls,
        denoiser: Denoiser,
        schedule: Schedule,
        *,
        seed: int = 0,
        variance: Variance | None = None,
        sampler: Sampler | None = None,
        eta: float | None = None,
    ) -> Chain:
        """Check the request and resolve the options; see `sample`."""
        chosen = schedule.sampler if sampler is None else sampler
        if eta is None:
            eta = schedule.eta if chosen == schedule.sampler else 0.0
        rule = samplers.find(chosen)
        samplers.check_eta(eta, chosen)
        if denoiser.shape is None and schedule.shape is None:
            raise ValueError("The sample shape is not known: pass shape= to Denoiser, for example shape=(3, 32, 32).")
        schedule.check_shape(denoiser.shape)
        warn_about_other_clipping(denoiser, schedule)
        steps, fitted = steps_on(denoiser.process, schedule), fitted_on(denoiser.process, schedule)
        options = resolve_options(denoiser.process, denoiser.variance, schedule, variance)
        if rule.takes_variance:
            check_fitted(fitted, variance=options.variance)
        if denoiser.shape is None:
            denoiser.shape = schedule.shape  # of the samples that chose it, once all checks have passed
        return cls(
            denoiser=denoiser,
            steps=steps,
            fitted=fitted,
            seed=check_seed(seed),
            variance=options.variance,
            sampler=chosen,
            eta=eta,
        )

    @property
    def rule(self) -> samplers.SamplerRule:
        """The sampler's rule."""
        return samplers.find(self.sampler)

    @property
    def is_random(self) -> bool:
        """Return whether its steps are known to add noise."""
        return self.rule.takes_variance or self.eta > 0.0

    @property
    def budget(self) -> int:
        """Number of steps."""
        return len(self.steps) - 1

    def start(self, first: int, count: int) -> Tensor:
        """x_T of samples first … first + count − 1."""
        return self._noise("prior", 0, first, count)

    def advance(self, state: Tensor, step: int, first: int, conditioning: Any = None) -> Tensor:
        """The state of samples first, first + 1, … after step number ``step``, counted from 0 at the noise end."""
        t, s = self.steps[step], self.steps[step + 1]
        process, rule = self.denoiser.process, self.rule
        x, last = (state[:, 0], state[:, 1]) if step and rule.remembers else (state, None)
        pending = self.denoiser.begin(x, t, conditioning)
        origin, noise = step if self.paired else int(process.origin[t]), None
        if s > 0 and self.is_random:  # drawn while the network runs, if on another device
            noise = self._noise("reverse", origin, first, len(x))
        prediction = pending()
        if s == 0:
            return prediction.x0_hat
        move = samplers.Move(
            process=process,
            t=t,
            s=s,
            before=self.steps[step - 1] if step else None,
            x=x,
            x0_hat=prediction.x0_hat,
            last=last,
            variance=(
                variances.find(self.variance).value(process, t, s, fraction=prediction.fraction, fitted=self.fitted)
                if rule.takes_variance
                else None
            ),
            eta=self.eta,
        )
        x, noise_variance = rule.step(move)
        if rule.correct is not None:
            x = rule.correct(move, x, self.denoiser(x, s, conditioning).x0_hat)
        if noise_variance is not None:
            noise = self._noise("reverse", origin, first, len(x)) if noise is None else noise
            x = x + torch.as_tensor(noise_variance, dtype=x.dtype, device=x.device).sqrt() * noise
        return torch.stack([x, prediction.x0_hat], dim=1) if rule.remembers else x

    def identity(self) -> dict[str, Any]:
        """Everything that samples depend on besides the model, as JSON values."""
        return {
            "process": self.denoiser.process.fingerprint,
            "steps": list(self.steps),
            "variance": self.variance if self.rule.takes_variance else None,
            "fitted": self._fitted_digest(),
            "sampler": self.sampler,
            "eta": self.eta,
            "seed": self.seed,
            "shape": list(self.denoiser.shape or ()),
        } | ({"noise": "by number of the step"} if self.paired else {})

    def _fitted_digest(self) -> str | None:
        """Digest of the fitted numbers on which the noise of the path depends."""
        fit = variances.find(self.variance).fit
        if fit is None or getattr(self.fitted, fit.numbers) is None:
            return None
        numbers = self.fitted.of(fit)[list(self.steps[:-1])]
        return hashlib.sha256(np.ascontiguousarray(numbers).tobytes()).hexdigest()[:16]

    def _noise(self, purpose: Literal["prior", "reverse"], step: int, first: int, count: int) -> Tensor:
        shape = self.denoiser.shape
        assert shape is not None
        noise = standard_normal(self.seed, purpose, step, first, count=count, shape=shape)
        return noise.to(device=self.denoiser.device, dtype=self.denoiser.algebra_dtype)
