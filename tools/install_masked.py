"""Put a trained model of characters into the zoo: embed its text, score it on the held-out part, write its card, copy it.

``python tools/install_masked.py RUN/model kjv-masked kjv.txt``
"""

from __future__ import annotations

import json
import lzma
import math
import shutil
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from safetensors.torch import load_file, save_file

from dpstride.reading.plain import read_text
from dpstride.training.loop import generator_of
from dpstride.training.masked.text import Ids, split_text
from dpstride.training.masked.train import masked_losses
from dpstride.zoo.characters import DESCRIPTION, WEIGHTS, decode, load_characters
from dpstride.zoo.texts import STRETCH, STRETCHES, TEXTS, _root
from model_card import describe, held_out, made

DRAWS = 4  # numbers of masked characters at which every passage is scored


def install(folder: Path, name: str, text: str) -> Path:
    """Embed ``text``, score the model in ``folder`` with its weights in half precision, and copy it to zoo/texts/NAME."""
    target = _root() / name
    if target.exists():
        shutil.rmtree(target)
    target.mkdir(parents=True)
    facts = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    halves = split_text(text, facts["length"])
    for (data, _), ids in zip(TEXTS.items(), halves, strict=True):
        (_root() / f"{data}.txt.xz").write_bytes(lzma.compress(stretches(ids).encode("utf-8"), preset=9))
    shutil.copy(folder / DESCRIPTION, target / DESCRIPTION)
    save_file({key: value.half() for key, value in load_file(folder / WEIGHTS).items()}, target / WEIGHTS)
    (whole, _), (bits, error) = (held_out_bits(each, halves[1]) for each in (folder, target))
    facts["held_out"] = {
        "bits": round(bits, 4),
        "standard_error": round(error, 4),
        "in_float32": round(whole, 4),
        "characters": len(halves[1]),
        "draws_of_t": DRAWS,
    }
    describe(target, facts, model_card(name, facts))
    return target


def stretches(ids: Ids) -> str:
    """Return evenly spaced excerpts of a half, one per line."""
    starts = np.arange(STRETCHES) * (len(ids) // STRETCHES)
    return "".join(decode(ids[start : start + STRETCH]) + "\n" for start in starts)


@torch.no_grad()
def held_out_bits(folder: Path, ids: Ids, seed: int = 0) -> tuple[float, float]:
    """Return bits/character, one character at a time, and its standard error, with stratified numbers of masked characters."""
    denoiser = load_characters(folder)
    n = denoiser.length
    tokens = torch.from_numpy(ids[: len(ids) // n * n].astype(np.int64).reshape(-1, n))
    generator, losses = generator_of(seed, 0), []
    for draw in range(DRAWS):
        places = torch.randperm(len(tokens), generator=generator)
        shares = (places + torch.rand(len(tokens), generator=generator)) / len(tokens)
        counts = (1 + ((draw + shares) / DRAWS * n).floor().long()).clamp(max=n)
        masked = torch.rand(len(tokens), n, generator=generator).argsort(dim=1).argsort(dim=1) < counts[:, None]
        parts = [
            masked_losses(denoiser.network, *each) for each in zip(tokens.split(64), masked.split(64), strict=True)
        ]
        losses.append(torch.cat(parts).double() / math.log(2.0))
    by_passage = torch.stack(losses).mean(dim=0)
    return float(by_passage.mean()), float(by_passage.std() / math.sqrt(len(by_passage)))


def model_card(name: str, facts: dict[str, Any]) -> str:
    """Return MODEL_CARD.md of a model of characters, from its dpstride.json."""
    scored = facts["held_out"]
    end = "cosine decay" if facts["cooldown"] is None else f"linear decay over the last {facts['cooldown']:,} steps"
    rows = {
        "objective": "masked diffusion: mean −ln p of the masked characters, with their number uniform on 1 … n",
        "network": f"bidirectional transformer, {facts['layers']} layers of width {facts['width']}, {facts['heads']} heads, "
        f"rotary positions, {facts['parameters']:,} parameters, stored in half precision",
        "passages": f"{facts['length']} characters from an alphabet of {len(facts['alphabet'])}",
        "training data": f"{facts['characters']:,} characters of the King James Bible (Debian's bible-kjv); the last of every "
        "ten blocks of 10,000 characters is held out",
        "training": f"{facts['steps_done']:,} steps with batch size {facts['batch_size']}, {facts['hours']:.1f} hours on one "
        "CPU core shared with other work",
        "optimiser": f"AdamW, peak learning rate {facts['learning_rate']:g} after {facts['warmup']} steps of warm-up, {end}, "
        f"gradient norm clipped at {facts['clip_norm']:g}, weights averaged with decay {facts['ema_decay']:g}",
        "seed": str(facts["seed"]),
    }
    return f"""---
license: apache-2.0
tags:
- masked diffusion
- text-generation
language:
- en
metrics:
- bits per character
---

# {name}

A small masked diffusion model of English characters, trained to demonstrate and test `dpstride` on tokens.

{made(rows, facts["command"])}

**Held-out bits/character, one character at a time: {scored["bits"]:.3f} ± {scored["standard_error"]:.3f}** (all
{scored["characters"]:,} held-out characters, every passage at {scored["draws_of_t"]} stratified numbers of masked characters;
{scored["in_float32"]:.3f} before the weights were rounded to half precision).

It loads with `dpstride.zoo.load_masked("{name}")`, and is meant only for studying schedules.
"""


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("name")
@click.argument("text", type=click.Path(exists=True, path_type=Path))
def main(folder: Path, name: str, text: Path) -> None:
    """Embed TEXT, score the trained FOLDER on its held-out part, and put it into the zoo as NAME."""
    torch.set_num_threads(1)
    target = install(folder, name, read_text(text))
    click.echo(held_out(target))


if __name__ == "__main__":
    main()
