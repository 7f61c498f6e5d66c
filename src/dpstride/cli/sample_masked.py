"""Stage 9. `dpstride sample` for a model of tokens: text, or token ids."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .console import emit

if TYPE_CHECKING:
    from ..integrations.loaded import LoadedModel
    from ..integrations.masked_loading import MaskedSource
    from ..masked.schedule import MaskedSchedule
    from ..options import Order

FILES = (".txt", ".npy")


@dataclass(frozen=True)
class AskedTokens:
    """A request for samples of tokens."""

    schedules: Path
    budget: int | None
    stride: str
    count: int
    output: Path
    order: Order
    seed: int
    batch_size: int
    unused: tuple[str, ...]  # options given that do not apply to tokens


def sample_tokens(source: MaskedSource | LoadedModel, asked: AskedTokens, *, as_json: bool, quiet: bool) -> None:
    """Write samples, one text per line of .txt, or token ids as .npy [n, length]; .txt needs a model with a tokenizer."""
    import numpy as np

    from ..integrations.masked_loading import MaskedSource
    from ..masked.sampling import sample_masked
    from ..runs.writing import atomic, write_text

    if not isinstance(source, MaskedSource):
        raise click.UsageError(
            f"{asked.schedules} holds unmasking schedules of tokens, but MODEL is a diffusion model of numbers. Give schedules "
            "found for it."
        )
    if asked.budget is None:
        raise click.UsageError("Give --budget (-k), a number of rounds.")
    if asked.unused:
        raise click.UsageError(
            f"{', '.join(asked.unused)}: only for diffusion of numbers, not of tokens. Leave it out."
        )
    if asked.output.suffix not in FILES:
        raise click.UsageError(f"--output must end in .txt or .npy for tokens, not {asked.output.suffix!r}. Rename it.")
    if asked.output.suffix == ".txt" and source.decode is None:
        raise click.UsageError("This model has no tokenizer to write text with. Give an output .npy for token ids.")
    samples = sample_masked(
        source.denoiser, _schedule(asked, asked.budget), asked.count, asked.seed,
        order=asked.order, batch_size=asked.batch_size, progress=not quiet,
    )  # fmt: skip
    if source.decode is not None and asked.output.suffix == ".txt":
        write_text(asked.output, "".join(" ".join(text.splitlines()) + "\n" for text in source.decode(samples)))
    else:
        with atomic(asked.output) as file:
            np.save(file, samples.numpy())
    facts: dict[str, Any] = {"samples": str(asked.output), "shape": list(samples.shape)}
    emit(as_json, facts, f"{asked.output}: {len(samples)} samples, {asked.budget} rounds")


def _schedule(asked: AskedTokens, budget: int) -> MaskedSchedule:
    from ..masked.schedule import MaskedScheduleSet
    from ..masked.strides import even_unmasking
    from ..options import BEST, EVEN

    chosen = MaskedScheduleSet.load(asked.schedules)
    if asked.stride not in (BEST, EVEN):
        raise click.UsageError(
            f"--stride {asked.stride} is only for diffusion of numbers. For tokens, use {BEST} or {EVEN}."
        )
    return chosen[budget] if asked.stride == BEST else even_unmasking(chosen.length, budget)
