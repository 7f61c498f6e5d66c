"""The loss curve of a run, drawn from its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dpstride.reading.text import printable
from dpstride.runs.writing import atomic


def draw_loss_curve(log: list[dict[str, Any]], path: Path, title: str) -> None:
    """Draw training and held-out loss against the step as a PNG, logarithmic if losses are positive."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 3.6), layout="constrained")
    axes = figure.subplots()
    steps = [record["step"] for record in log]
    axes.plot(steps, [record["train_loss"] for record in log], marker=".", label="training")
    if any(record["held_out_loss"] is not None for record in log):
        axes.plot(steps, [record["held_out_loss"] for record in log], marker=".", label="held out (EMA weights)")
    axes.set(xlabel="training step", ylabel="loss")
    axes.set_title(printable(title), parse_math=False, usetex=False)
    losses = [record[key] for record in log for key in ("train_loss", "held_out_loss") if record[key] is not None]
    if losses and min(losses) > 0.0:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    with atomic(path) as file:
        figure.savefig(file, format="png", dpi=120)
