"""Stage 9. `dpstride unmask`: the main job of masked diffusion, from a model and text to schedules and a held-out table."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from ..finding.inputs import DEFAULT_SAMPLES
from .claim import claims_folder
from .console import emit, printer
from .options import output, overwrite
from .report import run_of


@click.command("unmask", short_help="How many tokens a masked diffusion MODEL should reveal in each round.")
@click.argument("model")
@click.argument("text")
@click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder to write."
)
@click.option("--heldout", metavar="TEXT", help="Text to score on.  [default: a seeded, disjoint part of TEXT]")
@click.option("--samples", type=click.IntRange(min=1), default=DEFAULT_SAMPLES, show_default=True, help="To choose on.")
@click.option(
    "--heldout-samples", type=click.IntRange(min=1), default=DEFAULT_SAMPLES, show_default=True, help="To score on."
)
@click.option("--max-budget", type=click.IntRange(min=1), help="Largest number of rounds.  [default: all]")
@click.option("--seed", default=0, show_default=True, help="Random seed for masks and the order of TEXT.")
@click.option("--batch-size", default=64, show_default=True, help="Samples per network pass.")
@overwrite
@output
@claims_folder
def unmask_command(
    model: str,
    text: str,
    output: Path,
    heldout: str | None,
    samples: int,
    heldout_samples: int,
    max_budget: int | None,
    seed: int,
    batch_size: int,
    overwrite: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """The best numbers of tokens to reveal in each of K rounds, for every K, scored on held-out text beside hand-made rules.

    MODEL is a folder of `dpstride train masked`, a local folder of a masked language model of transformers, or
    package.module:function that returns a dpstride.MaskedDenoiser. TEXT is a text file, a folder of .txt files, token ids as
    .npy [N, length], or package.module:function; fewer samples are used where it has not enough.

    Writes schedules.json, comparison.json, table.txt, figures, statistics.safetensors and heldout.safetensors. Run again
    after an interruption, it goes on where it stopped; a folder with results of another model, other text or other options is
    refused, and --overwrite replaces them.

    \b
    Example:
      dpstride unmask runs/letters/model book.txt -o out
    """
    from ..integrations.masked_loading import load_masked_source
    from ..masked.comparison import COLUMNS, compare_masked
    from ..masked.costs import masked_schedules
    from ..masked.estimate import estimate_masked
    from ..masked.tokens import identity_of_run, split_samples
    from ..report.masked import save_masked_figures
    from ..runs.folder import begin
    from ..runs.writing import write_text

    say = printer(quiet or as_json)
    source = load_masked_source(model)
    data, others = source.read(text), None if heldout is None else source.read(heldout)
    chosen, scored = split_samples(data, others, samples, heldout_samples, seed=seed)
    for part in (chosen, scored):
        part.check(source.denoiser)
    identity = identity_of_run(source.denoiser, (chosen, scored), seed, {"max_budget": max_budget})
    begin(output, run_of(model, text, heldout, identity), {}, overwrite)
    say(f"Model    {source.denoiser!r}")
    say(
        f"Data     {len(chosen)} samples choose, {len(scored)} others score, of {int(chosen.sizes.max())} tokens at most"
    )
    estimate = partial(estimate_masked, source.denoiser, batch_size=batch_size, progress=not quiet)
    choosing = estimate(chosen, seed=seed, checkpoint=output / "statistics.safetensors")
    length = choosing.process.length
    scoring = estimate(scored, seed=seed + 1, length=length, checkpoint=output / "heldout.safetensors")
    schedules = masked_schedules(choosing, max_budget)
    budgets = [budget for budget in (*COLUMNS, length) if budget in schedules]
    comparison = compare_masked(schedules, scoring, choosing, budgets)
    schedules.save(output / "schedules.json")
    comparison.save(output / "comparison.json")
    summary = f"{comparison.table()}\n\n{comparison.sentence()}"
    write_text(output / "table.txt", summary + "\n")
    save_masked_figures(comparison, schedules, output)
    details = {"output": str(output), "length": length, "curves": comparison.curves}
    emit(as_json, details, f"{summary}\nWritten: {output / 'schedules.json'}")
