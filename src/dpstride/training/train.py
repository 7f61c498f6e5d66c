"""The training loop for all objectives, resumable bit for bit.

All randomness of step i (images, t and noise) comes from a generator seeded with (seed, i), so only the weights, their
averages, the optimiser and the sampler's history have to be stored for a run to resume as if never interrupted.
"""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from dpstride.denoiser import NonFiniteError
from dpstride.process import ForwardProcess
from dpstride.training.checkpoint import FILE, load_checkpoint, save_checkpoint
from dpstride.training.export import export_model
from dpstride.training.images import Images, as_images
from dpstride.training.loop import (
    HELD_OUT_STREAM,
    Pace,
    TrainingRun,
    advance,
    descend,
    generator_of,
    record,
    restore,
    run_folder,
    state_of,
)
from dpstride.training.network import attended_heights, build_network, default_channels, load_weights
from dpstride.training.objectives import Network, sample_losses, setting_of
from dpstride.training.settings import TrainingSettings
from dpstride.training.timesteps import LossAwareSampler, stratified, uniform_indices
from dpstride.zoo.models import DESCRIPTION, read_description

if TYPE_CHECKING:
    from torch import nn

FLIP_STREAM = 2  # stream 0 is t and noise of a step, 1 the order of images in an epoch


def train(
    images: Tensor | tuple[Tensor, Tensor] | Images,
    folder: str | Path,
    settings: TrainingSettings | None = None,
    *,
    process: ForwardProcess | None = None,
    held_out: Tensor | tuple[Tensor, Tensor] | Images | None = None,
    warm_start: str | Path | None = None,
    command: str | None = None,
    **pace: Any,
) -> Path:
    """Train a denoiser, and return the diffusers folder it is saved in.

    After an interruption, call it again with the same arguments: it resumes from the last checkpoint, and the result is bit
    for bit that of an uninterrupted run on the same machine.

    Args:
        images: uint8 [N, C, H, W], or a pair with their labels [N] if ``settings.classes`` is not 0.
        folder: folder for checkpoint.pt, log.json, loss.png and model/.
        settings: objective, length, rates, seed, network size.
        process: noise law; by default that of the objective (linear T=1000, cosine T=4000, vp_cosine, rectified flow).
        held_out: images for the held-out loss, in the same form; it uses the averaged weights and always the same t and noise.
        warm_start: a folder of `train` (or of any matching UNet2DModel) with initial weights.
        command: the command as typed, for dpstride.json.
        **pace: stop_at, evaluate_every, checkpoint_every, progress, report and tensorboard, see `Pace`.
    """
    settings, chosen = settings or TrainingSettings(), Pace(**pace)
    folder = Path(folder)
    with run_folder(folder):
        run = Run(images, folder, settings, process=process, held_out=held_out, warm_start=warm_start, command=command)
        advance(run, chosen)
        return folder if run.step < settings.steps else run.finish()


class Run(TrainingRun):
    """A training run on images."""

    settings: TrainingSettings

    def __init__(
        self,
        images: Tensor | tuple[Tensor, Tensor] | Images,
        folder: Path,
        settings: TrainingSettings,
        *,
        process: ForwardProcess | None = None,
        held_out: Tensor | tuple[Tensor, Tensor] | Images | None = None,
        warm_start: str | Path | None = None,
        command: str | None = None,
    ) -> None:
        self.images = as_images(images, settings.classes)
        self.held_out = None if held_out is None else as_images(held_out, settings.classes)
        if len(self.images) < settings.batch_size:
            raise ValueError(
                f"A batch of {settings.batch_size} needs as many images, but there are {len(self.images)} to train on. Give "
                "more images, or a smaller batch (--batch-size)."
            )
        shape = self.images.shape
        if self.held_out is not None and self.held_out.shape != shape:
            raise ValueError(
                f"Held-out images must have the shape {shape} of training images, not {self.held_out.shape}. Resize them."
            )
        # The widths are set here, so that checkpoints contain them.
        settings = replace(settings, channels=settings.channels or default_channels(shape))
        self.setting = setting_of(settings.objective)
        self.process = process or getattr(ForwardProcess, self.setting.process)(self.setting.T)
        self.warm_start = None if warm_start is None else str(warm_start)

        torch.manual_seed(settings.seed)
        network = build_network(
            shape,
            self.setting.learned_variance,
            settings.channels,
            settings.layers_per_block,
            attention=settings.attention,
            classes=settings.classes,
        )
        self.trained_before: dict[str, float] | None = None
        if warm_start is not None and not (folder / FILE).is_file():
            load_weights(network, Path(warm_start))
            self.trained_before = _training_of(Path(warm_start))
        optimiser = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
        super().__init__(folder, settings, network, optimiser, command=command)
        loss_aware = settings.loss_aware or self.setting.loss_aware
        self.sampler = LossAwareSampler(self.process.T) if loss_aware else None
        self.plans: list[list[int]] = [[0, settings.steps]]  # (step, total steps planned from that step on)
        self._restore()

    def advance(self) -> None:
        """One optimiser step."""
        started = time.perf_counter()
        settings = self.settings
        generator = generator_of(settings.seed, self.step)
        flipped = None
        if settings.flip:
            coin = generator_of(settings.seed, self.step, FLIP_STREAM)
            flipped = torch.rand(settings.batch_size, generator=coin) < 0.5
        x0, labels = self.images.batch(self._batch_indices(), flipped)
        eps = torch.randn(x0.shape, generator=generator)
        t, weights = self._draw(settings.batch_size, generator)
        self.network.train()
        losses = sample_losses(_callable(self.network, labels), self.process, settings.objective, x0=x0, t=t, eps=eps)
        loss = (losses * weights).mean()
        if not bool(torch.isfinite(loss)):
            raise NonFiniteError(
                f"The loss is {loss.item()} at step {self.step}. Start again in another folder with a lower learning rate "
                f"(now {settings.learning_rate}), or export the last checkpoint (--export-only) and start from it (--from)."
            )
        descend(self, loss)
        if self.sampler is not None:
            self.sampler.update(t, losses)
        self.seconds += time.perf_counter() - started

    def evaluate(self) -> dict[str, Any]:
        """Add a record to the log."""
        return record(self, self._held_out_loss)

    def save(self) -> None:
        """Write the checkpoint."""
        state = {
            "settings": self.identity(),
            **state_of(self),
            "sampler": None if self.sampler is None else self.sampler.state_dict(),
            "plans": self.plans,
            "trained_before": self.trained_before,
        }
        save_checkpoint(self.folder, state)

    @property
    def title(self) -> str:
        """Heading of the loss curve."""
        return f"{self.settings.objective}, {self.process.name}"

    def export(self, folder: Path, facts: dict[str, Any]) -> None:
        """Write the averaged network as a diffusers folder."""
        facts |= {
            "plans": self.plans,
            "images": len(self.images),
            "warm_start": self.warm_start,
            "trained_before": self.trained_before,
            "labels": self.images.key if self.settings.classes else None,
        }
        for size in ("channels", "attention"):  # the network's own config has them
            del facts[size]
        export_model(self.ema.module, self.process, self.setting, folder, facts=facts)

    def _restore(self) -> None:
        shape, channels = self.images.shape, self.settings.channels
        assert channels is not None
        meaning = {"attention": lambda heights: attended_heights(shape, channels, heights)}
        state = load_checkpoint(self.folder, self.identity(), meaning)
        if state is None:
            return

        def restore_more() -> None:
            if self.sampler is not None:
                self.sampler.load_state_dict(state["sampler"])
            first = [[0, state["settings"]["steps"]]]
            self.plans = [[int(start), int(steps)] for start, steps in state.get("plans", first)]
            if not self.plans:
                raise ValueError("it lacks the planned number of steps")

        restore(self, state, self.folder / FILE, restore_more)
        self.trained_before = state.get("trained_before")
        if self.plans[-1][1] != self.settings.steps:
            self.plans.append([self.step, self.settings.steps])

    def identity(self) -> dict[str, Any]:
        """Settings that must be the same for a checkpoint to be continued."""
        return {
            **asdict(self.settings),
            "process": self.process.name,
            "process_fingerprint": self.process.fingerprint,
            "images": len(self.images),
            "data": self.images.fingerprint,
            "warm_start": self.warm_start,
        }

    def _batch_indices(self) -> Tensor:
        """Images of this step: every epoch has its own permutation, without an incomplete last batch."""
        size = self.settings.batch_size
        epoch, place = divmod(self.step, len(self.images) // size)
        order = torch.randperm(len(self.images), generator=generator_of(self.settings.seed, epoch, stream=1))
        return order[place * size : (place + 1) * size]

    def _draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """t of every sample and the weight of its loss."""
        if self.sampler is not None:
            return self.sampler.draw(count, generator)
        if self.process.kind == "continuous":
            return stratified(count, generator), torch.ones(count)
        return uniform_indices(self.process.T, count, generator), torch.ones(count)

    @torch.no_grad()
    def _held_out_loss(self, batch_size: int = 250) -> float | None:
        """Mean loss of the averaged network; t and noise are the same at every call."""
        if self.held_out is None:
            return None
        generator = generator_of(self.settings.seed, HELD_OUT_STREAM)
        x0, labels = self.held_out.batch(slice(None))
        eps = torch.randn(x0.shape, generator=generator)
        if self.process.kind == "continuous":
            t, weights = stratified(len(x0), generator), torch.ones(len(x0))
        else:
            t, weights = _spread(self.process.T, len(x0), generator, self.setting.learned_variance)
        network = self.ema.module
        network.eval()
        total = 0.0
        for i in range(0, len(x0), batch_size):
            part = slice(i, i + batch_size)
            part_network = _callable(network, None if labels is None else labels[part])
            batch = {"x0": x0[part], "t": t[part], "eps": eps[part]}
            losses = sample_losses(part_network, self.process, self.settings.objective, **batch)
            total += float((losses * weights[part]).double().sum())
        return total / len(x0)


def _training_of(folder: Path) -> dict[str, float] | None:
    """Steps and hours that the model of a folder was trained for, if its description has them."""
    if not (folder / DESCRIPTION).is_file():
        return None
    facts = read_description(folder)
    earlier = facts.get("trained_before") or {"steps": 0, "hours": 0.0}
    return {
        "steps": facts.get("steps_done", 0) + earlier["steps"],
        "hours": round(facts.get("hours", 0.0) + earlier["hours"], 3),
    }


def _spread(T: int, count: int, generator: torch.Generator, bound: bool) -> tuple[Tensor, Tensor]:
    """Indices and weights for a held-out mean over uniform t; with ``bound``, half are near t = 1, where its terms peak."""
    if not bound:
        return uniform_indices(T, count, generator), torch.ones(count)
    inverse = 1.0 / np.arange(1, T + 1)
    p = 0.5 / T + 0.5 * inverse / inverse.sum()
    index = np.minimum(np.searchsorted(np.cumsum(p), stratified(count, generator).numpy()), T - 1)
    return torch.from_numpy(index + 1), torch.from_numpy(1.0 / (T * p[index])).float()


def _callable(network: nn.Module, labels: Tensor | None) -> Network:
    return lambda x, time_input: network(x, time_input, labels).sample
