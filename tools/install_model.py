"""Put a trained folder into the zoo: score it on the embedded test images, write its card, copy it.

``python tools/install_model.py RUN/model fashion-simple``
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click

from dpstride.training.objectives import setting_of
from dpstride.zoo.models import _root, load_folder, read_description
from full_chain import full_chain_bpd
from model_card import describe, held_out, made


def install(folder: str | Path, name: str, images: int = 2048, draws: int = 8, note: str = "") -> Path:
    """Score the model in ``folder``, copy it to zoo/models/NAME with the result in dpstride.json, and write its card."""
    from dpstride.zoo.data import load_data

    source, target = Path(folder), _root() / name
    facts = read_description(source)
    bpd, standard_error = full_chain_bpd(load_folder(source), load_data("fashion-test")[:images], draws)
    facts["held_out"] = {
        "bpd": round(bpd, 4),
        "standard_error": round(standard_error, 4),
        "images": images,
        "draws_of_t": draws,
        "data": "fashion-test",
        "chain": f"all {facts['T']} steps, variance {facts['variance']}, clip, decoder upper",
    }
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target)
    describe(target, facts, model_card(name, facts, note))
    return target


def model_card(name: str, facts: dict[str, Any], note: str = "") -> str:
    """MODEL_CARD.md of a model, from what its dpstride.json says; ``note`` is added as it is."""
    scored, setting = facts["held_out"], setting_of(facts["objective"])
    time_input = "the step, counted from 0" if facts["time_input"] == "index0" else "1000 · t, as a float"
    plans = facts.get("plans") or []
    lengths = "; ".join(f"from step {start} on with `--steps {steps}`" for start, steps in plans)
    planned = f" (run {lengths})" if len(plans) > 1 else ""
    rows = {
        "objective": setting.title,
        "process": f"{facts['process']}, T = {facts['T']}, {facts['kind']}",
        "network": f"diffusers UNet2DModel, {facts['parameters']:,} parameters, predicts {facts['predicts']}",
        "fed as time": time_input,
        "reverse variance": facts["variance"],
        "clipping of the clean estimate": str(facts["clip"]),
        "t in training": "drawn where losses are large, weighted so that the objective stays"
        if facts.get("loss_aware") or setting.loss_aware
        else "uniform, stratified over the batch",
        "training data": f"the first {facts['images']:,} training images of Fashion-MNIST; no augmentation",
        "training": f"{facts['steps_done']:,} steps of batch {facts['batch_size']}, {facts['hours']:.1f} hours on one "
        f"CPU core{planned}",
        "optimiser": f"Adam, peak rate {facts['learning_rate']:g} after {facts['warmup']} steps of warm-up, cosine decay, "
        f"gradient norm at most {facts['clip_norm']:g}, weights averaged with decay {facts['ema_decay']:g}",
        "started from": facts["warm_start"] or "random weights",
        "seed": str(facts["seed"]),
    }
    extra = f"\n{note.strip()}\n" if note.strip() else ""
    pipeline = "pipeline_tag: unconditional-image-generation\n"
    return f"""---
license: apache-2.0
library_name: diffusers
{pipeline}tags:
- diffusion
- unconditional-image-generation
datasets:
- zalando-datasets/fashion_mnist
metrics:
- bits per dimension
---

# {name}

A small model of 28×28 grey images of garments, trained to show and test what `dpstride` does.

{made(rows, facts["command"])}

**Held-out bits/dim: {scored["bpd"]:.3f} ± {scored["standard_error"]:.3f}** ({scored["chain"]}; {scored["images"]:,}
test images, each at the decoder's step and at {scored["draws_of_t"]} t stratified over all of them).
{extra}
Loads with diffusers alone (`unet/`), or as `dpstride.zoo.load("{name}")`. The data set is Fashion-MNIST, © 2017 Zalando
SE, MIT licence. Not meant for anything but studying schedules: it draws small garments, and not always well.
"""


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("name")
@click.option(
    "--images", type=click.IntRange(2, 2048), default=2048, show_default=True, help="Test images to score on."
)
@click.option("--draws", type=click.IntRange(1), default=8, show_default=True, help="Values of t per image.")
@click.option("--note", default="", help="A paragraph for the card.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
def main(folder: Path, name: str, images: int, draws: int, note: str, threads: int) -> None:
    """Score the trained FOLDER on the embedded test images and put it into the zoo as NAME."""
    import torch

    torch.set_num_threads(threads)
    target = install(folder, name, images, draws, note)
    click.echo(held_out(target))


if __name__ == "__main__":
    main()
