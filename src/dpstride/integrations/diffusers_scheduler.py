"""`DPStrideScheduler`: a diffusers scheduler whose ``set_timesteps(K)`` takes the best path of K steps.

To every pipeline, and in every saved folder, it is a DDPMScheduler; only its steps are its own: ancestral with any variance
and the mean at the last step, DDIM, or DPM-Solver++ 2M, all correct between any two training steps. The algebra is the
core's (`ForwardProcess`, `variances`), so a pipeline with it draws the same samples as `dpstride.sample`.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import DDPMScheduler
from diffusers.schedulers.scheduling_ddpm import DDPMSchedulerOutput
from diffusers.utils.torch_utils import randn_tensor
from torch import Tensor

from .. import samplers, variances
from ..evaluate.likelihood import check_fitted
from ..options import DEFAULT_MODEL_VARIANCE, VARIANCES
from ..paths import check_path
from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from ..runs.writing import write_json
from ..schedule import Schedule, ScheduleSet
from .loaded import UnsupportedModelError
from .scheduler_config import SchedulerFacts, read_scheduler

SCHEDULES_FILE = "dpstride_schedules.json"
OPTIONS_FILE = "dpstride_scheduler.json"
SCHEDULER_FILE = "scheduler_config.json"
OPTIONS = {"sampler", "variance", "eta"}


class DPStrideScheduler(DDPMScheduler):  # type: ignore[misc]  # diffusers has no types
    """DDPM and DDIM along the paths of a `ScheduleSet`; make one with `from_config` or `from_pretrained`.

    Args:
        schedules: a ScheduleSet, a single Schedule, or the path of their JSON file.
        sampler: the sampler, as in `sample`; None is the schedules' own, else ancestral.
        variance: reverse variance of ancestral steps, as in `elbo_costs`; None is the schedules' own, else the model's.
        eta: noise of DDIM, 0 (deterministic) to 1; None is the schedules' own, else 0. A pipeline that passes its own eta
            (DDIMPipeline) overrides it.
        configuration: arguments of DDPMScheduler.
    """

    def __init__(
        self,
        schedules: ScheduleSet | Schedule | str | os.PathLike[str] | None = None,
        sampler: str | None = None,
        variance: str | None = None,
        eta: float | None = None,
        **configuration: Any,
    ) -> None:
        super().__init__(**configuration)
        if schedules is None:
            raise ValueError(
                "DPStrideScheduler needs schedules: DPStrideScheduler.from_config(pipe.scheduler.config, schedules="
                "'schedules.json')."
            )
        if variance is not None and variance not in VARIANCES:
            raise ValueError(f"variance must be None or one of {', '.join(map(repr, VARIANCES))}, not {variance!r}.")
        self.schedules = _read(schedules)
        self.sampler = sampler or self.schedules.sampler
        own_eta = self.schedules.eta if self.sampler == self.schedules.sampler else 0.0
        self.eta = own_eta if eta is None else eta
        samplers.check_eta(self.eta)
        if self._rule.correct is not None:
            raise ValueError(
                f"DPStrideScheduler takes one network evaluation per step, but {self._rule.words}'s method takes two. Pass "
                "the schedule's timesteps to diffusers' own scheduler of that method, or give sampler=."
            )
        self.facts = read_scheduler(dict(self.config), class_name="DDPMScheduler")
        _check_process(self.schedules, self.facts)
        own = self.schedules.options.get("variance")
        self.variance = variance or own or self.facts.variance or DEFAULT_MODEL_VARIANCE
        if self._rule.takes_variance:
            check_fitted(self.schedules.fitted, variance=self.variance)
        self._path: tuple[int, ...] = ()
        self._last: Tensor | None = None  # x̂_0 of the previous step, for DPM-Solver++
        # diffusers writes this into model_index.json: the folder remains that of a DDPMScheduler, which loads anywhere.
        self.__module__ = DDPMScheduler.__module__

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """DDPMScheduler: diffusers saves ``__class__.__name__``, and a folder with our name would load only with dpstride."""
        return DDPMScheduler  # type: ignore[no-any-return]

    def __reduce__(self) -> Any:
        return _blank, (), self.__dict__

    # --- making, saving and loading ------------------------------------------------------------------------------------

    @classmethod
    def from_config(cls, config: Mapping[str, Any], **arguments: Any) -> Any:
        """Make one from any DDPM-type scheduler's config and ``schedules=``; unsupported settings are refused."""
        config = dict(config)
        # diffusers would replace defaults of the original class by those of ours, and clip latents.
        config.pop("_use_default_values", None)
        if "clip_sample" not in config:
            config["clip_sample"] = False
        if config.get("variance_type") is None:
            config["variance_type"] = "fixed_small"
        read_scheduler(config)
        return super().from_config(config, **arguments)

    def save_pretrained(self, save_directory: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Save a plain DDPMScheduler's config, with the schedules and our options in two files next to it."""
        super().save_pretrained(save_directory, *args, **kwargs)
        options = {"sampler": self.sampler, "variance": self.variance, "eta": self.eta}
        write_json(Path(save_directory) / OPTIONS_FILE, options, indent=2)
        self.schedules.save(Path(save_directory) / SCHEDULES_FILE)

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: str | os.PathLike[str],
        subfolder: str | None = None,
        schedules: ScheduleSet | Schedule | str | os.PathLike[str] | None = None,
        **arguments: Any,
    ) -> Any:
        """Load from a saved folder; schedules and options are those saved with it unless given."""
        folder = Path(pretrained_model_name_or_path) / (subfolder or "")
        if (folder / SCHEDULER_FILE).is_file():
            config: Any = read_json_object(folder / SCHEDULER_FILE)
        else:
            config = DDPMScheduler.load_config(pretrained_model_name_or_path, subfolder=subfolder)
        if schedules is None:
            if not (folder / SCHEDULES_FILE).is_file():
                raise ValueError(f"{folder}: holds no {SCHEDULES_FILE}. Pass schedules=, for example a JSON file.")
            schedules = folder / SCHEDULES_FILE
            options = read_json_object(folder / OPTIONS_FILE)
            if unknown := sorted(options.keys() - OPTIONS):
                raise UnreadableFileError(
                    f"{folder / OPTIONS_FILE}: {unknown[0]!r:.80} is not one of {sorted(OPTIONS)}."
                )
            arguments = {**options, **arguments}
        try:
            return cls.from_config(config, schedules=schedules, **arguments)
        except (ValueError, TypeError, AttributeError, KeyError, NotImplementedError, ArithmeticError) as error:
            # DDPMScheduler itself does not check its config, and fails in many ways.
            what = str(error) if isinstance(error, ValueError) else repr(error)
            raise UnsupportedModelError(f"{folder}: {what:.500}") from error

    # --- the path ------------------------------------------------------------------------------------------------------

    def set_timesteps(
        self,
        num_inference_steps: int | None = None,
        device: str | torch.device | None = None,
        timesteps: list[int] | None = None,
    ) -> None:
        """Choose the path: the best of ``num_inference_steps`` steps, or the training steps ``timesteps`` (descending)."""
        process = self.schedules.process
        if (num_inference_steps is None) == (timesteps is None):
            raise ValueError("Give num_inference_steps or timesteps, one of the two.")
        if timesteps is None:
            assert num_inference_steps is not None
            self._path = self.schedules[int(num_inference_steps)].steps
        else:
            wanted = [int(step) + 1 for step in timesteps]
            places = np.searchsorted(process.origin, wanted)
            if (places > process.T).any() or (process.origin[np.minimum(places, process.T)] != wanted).any():
                raise ValueError("timesteps must be training steps on the grid of the schedules, counted from 0.")
            self._path = check_path([*(int(place) for place in places), 0], process.T)
        self._last = None
        self.num_inference_steps = len(self._path) - 1
        self.custom_timesteps = timesteps is not None
        self.timesteps = torch.tensor(process.origin[list(self._path[:-1])] - 1, dtype=torch.int64, device=device)

    def previous_timestep(self, timestep: int | Tensor) -> int:
        """Return the training step after ``timestep`` on the path, counted from 0; −1 is clean data."""
        _, s = self._pair(timestep)
        return int(self.schedules.process.origin[s]) - 1

    def _pair(self, timestep: int | Tensor) -> tuple[int, int]:
        if not self._path:
            raise ValueError("The path is not chosen yet. Call set_timesteps(K) before step.")
        origin = self.schedules.process.origin
        for t, s in zip(self._path, self._path[1:], strict=False):
            if int(origin[t]) - 1 == int(timestep):
                return t, s
        raise ValueError(f"Training step {int(timestep)} is not on the path {self.timesteps.tolist()}.")

    # --- one step ------------------------------------------------------------------------------------------------------

    def step(
        self,
        model_output: Tensor,
        timestep: int | Tensor,
        sample: Tensor,
        generator: torch.Generator | list[torch.Generator] | None = None,
        *,
        return_dict: bool = True,
        eta: float | None = None,
        use_clipped_model_output: bool | None = None,
    ) -> Any:
        """Return x_s from x_t, with s the next point of the path; the last step returns the mean x̂_0.

        ``eta`` matters in DDIM mode only. ``use_clipped_model_output=False`` takes DDIM's direction from the network's own
        noise estimate; otherwise from the clipped x̂_0, as in `dpstride.sample`.
        """
        t, s = self._pair(timestep)
        process, channels = self.schedules.process, sample.shape[1]
        dtype = torch.float32 if sample.device.type == "mps" else torch.float64
        x, output = sample.to(dtype), model_output.to(dtype)
        fraction = None
        if output.shape[1] == 2 * channels:
            output, v = output.chunk(2, dim=1)
            fraction = (v + 1.0) / 2.0
        estimate = self._x0_hat(output, x, float(process.f[t]), float(process.g[t]))
        x0_hat = estimate if self.facts.clip is None else estimate.clamp(*self.facts.clip)
        previous = x0_hat
        if s > 0:
            rule, place = self._rule, self._path.index(t)
            previous, noise_variance = rule.step(
                samplers.Move(
                    process=process,
                    t=t,
                    s=s,
                    before=self._path[place - 1] if place else None,
                    x=x,
                    x0_hat=x0_hat,
                    towards=estimate if use_clipped_model_output is False else None,
                    last=self._last if place else None,
                    variance=self._reverse_variance(t, s, fraction) if rule.takes_variance else None,
                    eta=self.eta if eta is None else eta,
                )
            )
            if noise_variance is not None:
                deviation = torch.as_tensor(noise_variance, dtype=dtype, device=sample.device).sqrt()
                noise = randn_tensor(sample.shape, generator=generator, device=sample.device, dtype=sample.dtype)
                previous = previous + deviation * torch.as_tensor(noise, dtype=dtype)
        self._last = x0_hat
        previous, x0_hat = previous.to(sample.dtype), x0_hat.to(sample.dtype)
        if not return_dict:
            return previous, x0_hat
        return DDPMSchedulerOutput(prev_sample=previous, pred_original_sample=x0_hat)

    def _x0_hat(self, output: Tensor, x: Tensor, f: float, g: float) -> Tensor:
        match self.facts.predicts:
            case "eps":
                return (x - g * output) / f
            case "v":
                return f * x - g * output
            case _:
                return output

    @property
    def _rule(self) -> samplers.SamplerRule:
        return samplers.find(self.sampler)

    def _reverse_variance(self, t: int, s: int, fraction: Tensor | None) -> Any:
        kind = variances.find(self.variance)
        if kind.learned and fraction is None:
            raise ValueError(
                f"variance={self.variance!r} needs the network's variance channels, but this pipeline passed only the "
                "prediction (DiTPipeline drops them before it calls the scheduler). Sample with dpstride.sample, which "
                "keeps them, or choose variance='posterior', 'upper' or 'optimal'."
            )
        return kind.value(self.schedules.process, t, s, fraction=fraction, fitted=self.schedules.fitted)


def _blank() -> DPStrideScheduler:
    return DPStrideScheduler.__new__(DPStrideScheduler)


def _read(schedules: ScheduleSet | Schedule | str | os.PathLike[str]) -> ScheduleSet:
    if isinstance(schedules, Schedule):
        return ScheduleSet.of([schedules])
    return schedules if isinstance(schedules, ScheduleSet) else ScheduleSet.load(schedules)


def _check_process(schedules: ScheduleSet, facts: SchedulerFacts) -> None:
    """Refuse schedules of other noise levels than this scheduler's: training steps, f and g must be the same."""
    ours, theirs = schedules.process, facts.process
    same = ours.kind == "discrete" and ours.origin_T == theirs.T
    same = same and np.allclose(ours.f, theirs.f[ours.origin], rtol=1e-5, atol=1e-7)
    if not (same and np.allclose(ours.g, theirs.g[ours.origin], rtol=1e-5, atol=1e-7)):
        raise UnsupportedModelError(
            f"The schedules were made for the process {ours.name!r} (T = {ours.origin_T}), but this scheduler's config has "
            f"{theirs.name!r} (T = {theirs.T}) with different noise levels. Optimise on this model."
        )


# diffusers reads the names of a config from the signature, which must therefore show those in **configuration.
_own = list(inspect.signature(DPStrideScheduler.__init__).parameters.values())[:-1]
_inherited = [p for p in inspect.signature(DDPMScheduler.__init__).parameters.values() if p.name != "self"]
vars(DPStrideScheduler)["__init__"].__signature__ = inspect.Signature([*_own, *_inherited])
