"""Parts of a training loop that do not depend on the model: steps, records, checkpoints, random numbers."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from dpstride.reading.limits import UnreadableFileError
from dpstride.reading.text import first_line
from dpstride.runs.entries import check_entries
from dpstride.runs.lock import Lock
from dpstride.runs.writing import remove_leftovers, write_json
from dpstride.training.checkpoint import DAMAGED, FILE, load_checkpoint
from dpstride.training.curve import draw_loss_curve
from dpstride.training.scalars import FOLDER, require_tensorboard, scalars_of
from dpstride.training.settings import LoopSettings, learning_rate_at

WRITTEN = (
    *(FILE, "log.json", "loss.png", FOLDER, f"{FOLDER}/*"),
    *("model", "model/*", "model/unet/*", "model/scheduler/*"),
)
HELD_OUT_STREAM = 2**31  # a step number that no run reaches, for the noise of the held-out loss


@dataclass(frozen=True)
class Pace:
    """Interruptions and outputs of a run, which do not change its result.

    Attributes:
        stop_at: stop after this step with a checkpoint, without finishing (the learning rate still follows ``steps``).
        evaluate_every: steps between held-out losses.
        checkpoint_every: steps between checkpoints.
        progress: show a bar; None shows it on a terminal only.
        report: called with every record of the log.
        tensorboard: also write every record as scalars for TensorBoard, into the folder tensorboard/ of the run.
    """

    stop_at: int | None = None
    evaluate_every: int = 500
    checkpoint_every: int = 100
    progress: bool | None = None
    report: Callable[[dict[str, Any]], None] | None = None
    tensorboard: bool = False

    def __post_init__(self) -> None:
        if self.tensorboard:
            require_tensorboard()


class TrainingRun(ABC):
    """The state of one training run, advanced step by step."""

    def __init__(
        self,
        folder: Path,
        settings: LoopSettings,
        network: nn.Module,
        optimiser: torch.optim.Optimizer,
        command: str | None = None,
    ) -> None:
        self.folder, self.settings, self.command = folder, settings, command
        self.network, self.optimiser = network, optimiser
        self.ema = AveragedModel(network, multi_avg_fn=average_with(settings.ema_decay))
        self.step, self.seconds = 0, 0.0  # steps done, and their time
        self.log: list[dict[str, Any]] = []
        self.recent: list[float] = []  # losses since the last record

    @property
    @abstractmethod
    def title(self) -> str:
        """Heading of the loss curve."""

    @abstractmethod
    def advance(self) -> None:
        """One optimiser step."""

    @abstractmethod
    def evaluate(self) -> dict[str, Any]:
        """Add a record to the log."""

    @abstractmethod
    def save(self) -> None:
        """Write the checkpoint."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Settings that must be the same for a checkpoint to be continued."""

    @abstractmethod
    def export(self, folder: Path, facts: dict[str, Any]) -> None:
        """Write the averaged network into ``folder``, with these and its own facts."""

    def finish(self) -> Path:
        """Write log.json, loss.png and the averaged network as model/; return the model's folder."""
        if not self.log or self.log[-1]["step"] != self.step:
            self.evaluate()
        write_json(self.folder / "log.json", {"settings": self.identity(), "log": self.log})
        draw_loss_curve(self.log, self.folder / "loss.png", self.title)
        facts = {
            **asdict(self.settings),
            "steps_done": self.step,
            "hours": round(self.seconds / 3600.0, 3),
            "command": self.command,
        }
        self.export(self.folder / "model", facts)
        return self.folder / "model"


@contextmanager
def run_folder(folder: Path) -> Iterator[None]:
    """Lock the folder of a run, refuse links out of it, and remove leftovers of a killed run."""
    with Lock(folder):
        check_entries(folder, WRITTEN)
        remove_leftovers(folder)
        yield


def export_last(folder: Path, run_of: Callable[[int], TrainingRun]) -> Path:
    """Write the network of the last checkpoint without further training; the run keeps its planned number of steps."""
    with run_folder(folder):
        found = load_checkpoint(folder)
        if found is None or found["step"] == 0:
            raise ValueError(f"{folder} holds no checkpoint to export. Train first.")
        return run_of(found["settings"]["steps"]).finish()


def advance(run: TrainingRun, pace: Pace) -> None:
    """Advance a run to its end, or to ``pace.stop_at``, recording losses and writing checkpoints."""
    from tqdm import tqdm

    steps = run.settings.steps
    last = steps if pace.stop_at is None else min(pace.stop_at, steps)
    hidden = None if pace.progress is None else not pace.progress
    bar = tqdm(total=steps, initial=run.step, desc="train", unit=" steps", disable=hidden, dynamic_ncols=True)
    scalars = scalars_of(run.folder, run.log, run.settings.batch_size) if pace.tensorboard else nullcontext()
    with bar, flushing_denormals(), scalars as write:
        while run.step < last:
            run.advance()
            bar.update()
            if run.step % pace.evaluate_every == 0 or run.step == steps:
                record = run.evaluate()
                bar.set_postfix(held_out=record["held_out_loss"], train=record["train_loss"])
                if write is not None:
                    write()
                if pace.report is not None:
                    pace.report(record)
            if run.step % pace.checkpoint_every == 0 or run.step == last:
                run.save()


@contextmanager
def flushing_denormals() -> Iterator[None]:
    """Flush numbers below 1.2e-38 to zero in this context: gradients of confident networks are full of them, and a processor
    takes a hundred times as long for each."""
    was = bool(torch.tensor([1e-39]).mul(1.0).item() == 0.0)
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(was)


def descend(run: TrainingRun, loss: Tensor) -> None:
    """One optimiser step on ``loss``, and an update of the averaged weights."""
    run.optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    torch.nn.utils.clip_grad_norm_(run.network.parameters(), run.settings.clip_norm)
    for group in run.optimiser.param_groups:
        group["lr"] = learning_rate_at(run.step, run.settings)
    run.optimiser.step()
    run.ema.update_parameters(run.network)
    run.recent.append(loss.item())
    run.step += 1


def record(run: TrainingRun, held_out: Callable[[], float | None]) -> dict[str, Any]:
    """Add a record to the log: the mean training loss since the last one, and the held-out loss of the averaged weights."""
    started = time.perf_counter()
    loss = held_out()
    run.seconds += time.perf_counter() - started
    found = {
        "step": run.step,
        "train_loss": float(np.mean(run.recent)) if run.recent else None,
        "held_out_loss": loss,
        "learning_rate": learning_rate_at(run.step - 1, run.settings),
        "hours": round(run.seconds / 3600.0, 8),
    }
    run.recent = []
    run.log.append(found)
    return found


def state_of(run: TrainingRun) -> dict[str, Any]:
    """Everything that the next step depends on, for any model."""
    return {
        "step": run.step,
        "seconds": run.seconds,
        "network": run.network.state_dict(),
        "ema": run.ema.state_dict(),
        "optimiser": run.optimiser.state_dict(),
        "rng": torch.get_rng_state(),
        "log": run.log,
        "recent": run.recent,
    }


def restore(run: TrainingRun, state: dict[str, Any], path: Path, more: Callable[[], None] = lambda: None) -> None:
    """Restore the result of `state_of`, and ``more`` from the same file; errors name ``path``."""
    try:
        run.network.load_state_dict(state["network"])
        run.ema.load_state_dict(state["ema"])
        # Options in param_groups are this run's own, whatever is in the file; only Adam's averages are restored.
        groups = run.optimiser.state_dict()["param_groups"]
        run.optimiser.load_state_dict({"state": state["optimiser"]["state"], "param_groups": groups})
        _check_optimiser(run.optimiser)
        torch.set_rng_state(state["rng"])
        more()
    except Exception as error:  # torch's loaders fail in many ways on the state of another network
        raise UnreadableFileError(f"{path}: does not fit this run ({first_line(error)}). {DAMAGED}") from error
    run.step, run.seconds, run.log, run.recent = state["step"], state["seconds"], state["log"], state["recent"]
    if run.step > run.settings.steps:
        raise ValueError(
            f"{path.parent} has reached step {run.step}, beyond the {run.settings.steps} requested steps. Request at least as "
            "many, or write the current model (--export-only)."
        )


def _check_optimiser(optimiser: torch.optim.Optimizer) -> None:
    """Raise unless the state fits the parameters: Adam loads any state, and fails or diverges at its next step."""
    (group,) = optimiser.param_groups
    for parameter in group["params"]:
        kept = optimiser.state.get(parameter, {})
        if kept and set(kept) != {"step", "exp_avg", "exp_avg_sq"}:
            raise ValueError("the optimiser's state is not Adam's")
        for name, shape in (("step", ()), ("exp_avg", parameter.shape), ("exp_avg_sq", parameter.shape)):
            if kept and (not isinstance(kept[name], Tensor) or kept[name].shape != shape):
                raise ValueError(f"the optimiser's {name} has another shape than its parameter")


def average_with(decay: float) -> Callable[[Any, Any, Any], None]:
    """Exponential moving average whose decay grows up to ``decay``, so that early weights are soon forgotten."""

    @torch.no_grad()
    def update(averaged: Any, current: Any, count: Any) -> None:
        torch._foreach_lerp_(averaged, current, 1.0 - min(decay, (1.0 + int(count)) / (10.0 + int(count))))

    return update


def generator_of(seed: int, step: int, stream: int = 0) -> torch.Generator:
    """The random numbers of a step."""
    state = np.random.SeedSequence([seed, step, stream]).generate_state(1, dtype=np.uint64)[0]
    return torch.Generator().manual_seed(int(state) & (2**63 - 1))
