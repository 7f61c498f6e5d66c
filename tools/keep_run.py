"""Keep a training run in the repository: its averaged network in half precision, its log and its loss curve.

    dpstride train … -o runs/cifar-hybrid --export-only
    python tools/keep_run.py runs/cifar-hybrid checkpoints/cifar-hybrid

``dpstride train … --from checkpoints/cifar-hybrid/model`` continues from there on any machine, with a fresh optimiser; a run's
own checkpoint.pt, from which it resumes bit for bit, is eight times as large. Logs and curves are numbered by the total steps
of the model, so those of earlier runs are kept.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from dpstride.zoo.models import read_description
from install_model import keep_half


def keep(run: str | Path, target: str | Path) -> Path:
    """Copy the exported model of the folder ``run`` to ``target``/model, and its log and curve to ``target``."""
    run, target = Path(run), Path(target)
    facts = read_description(run / "model")
    steps = facts["steps_done"] + (facts.get("trained_before") or {"steps": 0})["steps"]
    shutil.rmtree(target / "model", ignore_errors=True)
    shutil.copytree(run / "model", target / "model")
    keep_half(target / "model")
    for name in ("log.json", "loss.png"):
        shutil.copy(run / name, target / f"{steps:07d}-{name}")
    return target


@click.command()
@click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("target", type=click.Path(file_okay=False, path_type=Path))
def main(run: Path, target: Path) -> None:
    """Keep the exported model, log and loss curve of the training RUN in the folder TARGET."""
    click.echo(keep(run, target))


if __name__ == "__main__":
    main()
