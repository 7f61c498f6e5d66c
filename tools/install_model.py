"""Put a trained folder into the zoo: score it on test images, write its card, copy it.

``python tools/install_model.py RUN/model fashion-simple``
``python tools/install_model.py RUN/model cifar-simple --heldout cifar-10-batches-bin/test_batch.bin --half``

The first word of the name identifies the training data (`FAMILIES`).
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dpstride.training.objectives import setting_of
from dpstride.zoo.models import _root, load_folder, read_description
from full_chain import full_chain_bpd
from model_card import describe, held_out, made

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Family:
    """Card entries shared by all models of one data set.

    Attributes:
        heldout: embedded test images.
        hub: the data set's id on the Hugging Face hub.
        title: its name.
        pictures: a description of its images.
        origin: source and licence of the data set.
    """

    heldout: str
    hub: str
    title: str
    pictures: str
    origin: str


FAMILIES = {
    "fashion": Family(
        heldout="fashion-test",
        hub="zalando-datasets/fashion_mnist",
        title="Fashion-MNIST",
        pictures="28×28 greyscale images of clothing",
        origin="Fashion-MNIST, © 2017 Zalando SE, MIT licence",
    ),
    "cifar": Family(
        heldout="cifar-test",
        hub="uoft-cs/cifar10",
        title="CIFAR-10",
        pictures="32×32 colour images of ten classes",
        origin="CIFAR-10 (Krizhevsky 2009), a subset of the 80 Million Tiny Images, published without a licence",
    ),
}


def install(
    folder: str | Path,
    name: str,
    heldout: str | None = None,
    *,
    images: int = 2048,
    draws: int = 8,
    half: bool = False,
    note: str = "",
) -> Path:
    """Score the model in ``folder``, copy it to zoo/models/NAME with the result in dpstride.json, and write its card.

    With ``half`` the weights are stored in float16 and both scores are stated, on the same images and noise samples.
    """
    import torch

    from dpstride import read_data
    from dpstride.zoo.data import load_data

    family = FAMILIES[name.partition("-")[0]]
    test = load_data(family.heldout) if heldout is None else torch.as_tensor(read_data(heldout))
    source, target = Path(folder), _root() / name
    facts = read_description(source)
    facts["held_out"] = _score(source, test[:images], draws) | {
        "data": family.heldout if heldout is None else Path(heldout).name,
        "chain": f"all {facts['T']} steps, variance {facts['variance']}, clip, decoder upper",
    }
    if target.exists():
        shutil.rmtree(target)
    shutil.copytree(source, target)
    if half:
        keep_half(target)
        facts["held_out"]["bpd_of_float32"] = facts["held_out"]["bpd"]
        facts["held_out"] |= _score(target, test[:images], draws)
    describe(target, facts, model_card(name, facts, note))
    return target


def _score(folder: Path, images: Tensor, draws: int) -> dict[str, Any]:
    bpd, standard_error = full_chain_bpd(load_folder(folder), images, draws)
    found = {"bpd": round(bpd, 4), "standard_error": round(standard_error, 4)}
    return found | {"images": len(images), "draws_of_t": draws}


def keep_half(folder: Path) -> None:
    """Write the weights of a model's folder in float16, half the size; they are converted back to float32 on loading."""
    from safetensors.torch import load_file, save_file

    path = folder / "unet" / "diffusion_pytorch_model.safetensors"
    weights = {name: tensor.half() for name, tensor in load_file(path).items()}
    save_file(weights, path, metadata={"format": "pt"})


def model_card(name: str, facts: dict[str, Any], note: str = "") -> str:
    """Return MODEL_CARD.md of a model, from its dpstride.json; ``note`` is added verbatim."""
    scored, setting, family = facts["held_out"], setting_of(facts["objective"]), FAMILIES[name.partition("-")[0]]
    time_input = "the training step, counted from 0" if facts["time_input"] == "index0" else "1000 · t, as a float"
    plans = facts.get("plans") or []
    lengths = "; ".join(f"from step {start} with `--steps {steps}`" for start, steps in plans)
    planned = f" ({lengths})" if len(plans) > 1 else ""
    cooldown = facts.get("cooldown")
    decay = "cosine decay" if cooldown is None else f"linear decay over the last {cooldown:,} steps"
    rows = {
        "objective": setting.title,
        "process": f"{facts['process']}, T = {facts['T']}, {facts['kind']}",
        "network": f"diffusers UNet2DModel, {facts['parameters']:,} parameters, predicts {facts['predicts']}",
        "time input": time_input,
        "reverse variance": facts["variance"],
        "clipping of the clean estimate": str(facts["clip"]),
        "sampling of t": "more often where losses are large, with weights that leave the objective unchanged"
        if facts.get("loss_aware") or setting.loss_aware
        else "uniform, stratified over the batch",
        "training data": f"{facts['images']:,} training images of {family.title}; "
        + ("random horizontal flips" if facts.get("flip") else "no augmentation"),
        "training": f"{facts['steps_done']:,} steps with batch size {facts['batch_size']}, {facts['hours']:.1f} hours on one "
        f"CPU core{planned}",
        "optimiser": f"Adam, peak learning rate {facts['learning_rate']:g} after {facts['warmup']} steps of warm-up, {decay}, "
        f"gradient norm clipped at {facts['clip_norm']:g}, weights averaged with decay {facts['ema_decay']:g}",
        "initialised from": facts["warm_start"] or "random weights",
        "seed": str(facts["seed"]),
    }
    kept = (
        f" Stored in float16; in float32 it is {scored['bpd_of_float32']:.4f}, with the same images and noise samples."
        if "bpd_of_float32" in scored
        else ""
    )
    extra = f"\n{note.strip()}\n" if note.strip() else ""
    pipeline = "pipeline_tag: unconditional-image-generation\n"
    return f"""---
license: apache-2.0
library_name: diffusers
{pipeline}tags:
- diffusion
- unconditional-image-generation
datasets:
- {family.hub}
metrics:
- bits per dimension
---

# {name}

A small diffusion model of {family.pictures}, trained to demonstrate and test `dpstride`.

{made(rows, facts["command"])}

**Held-out bits/dim: {scored["bpd"]:.3f} ± {scored["standard_error"]:.3f}** ({scored["chain"]}; {scored["images"]:,}
test images, each at the decoder step and at {scored["draws_of_t"]} values of t stratified over all steps).{kept}
{extra}
It loads with diffusers alone (`unet/`), or with `dpstride.zoo.load("{name}")`. The data set is {family.origin}.
The model is meant only for studying schedules: its samples are small, and not always good.
"""


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("name")
@click.option("--heldout", metavar="DATA", help="Test images.  [the embedded ones]")
@click.option("--images", type=click.IntRange(2), default=2048, show_default=True, help="Test images to score on.")
@click.option("--draws", type=click.IntRange(1), default=8, show_default=True, help="Values of t per image.")
@click.option("--half", is_flag=True, help="Store the weights in float16.")
@click.option("--note", default="", help="A paragraph for the card.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
def main(folder: Path, name: str, heldout: str | None, threads: int, **how: Any) -> None:
    """Score the trained FOLDER on test images and put it into the zoo as NAME."""
    import torch

    torch.set_num_threads(threads)
    click.echo(held_out(install(folder, name, heldout, **how)))


if __name__ == "__main__":
    main()
