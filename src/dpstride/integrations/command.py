"""`dpstride export`: a saved schedule in the form that another sampler takes, on standard output or in a file."""

from __future__ import annotations

import json

import click

from ..options import SAMPLERS, Sampler
from ..runs.entries import check_apart
from ..runs.writing import write_text
from .forms import CODE, NUMBERS, TOKENS, kind_of

JSON = "json"  # a schedule file again


@click.command("export")
@click.argument("schedules", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--to",
    "target",
    type=click.Choice(list(dict.fromkeys([*NUMBERS.forms, JSON, *TOKENS.forms]))),
    required=True,
    help="diffusers: timesteps= list (a flow's sigmas= list). diffusers-code: a Python program that draws with it. "
    "improved-diffusion: --timestep_respacing string. k-diffusion: sigmas with the final 0, also for diffusers' Euler. "
    "comfyui: text for its ManualSigmas node. a1111: list for the custom scheduler of its extension webUI_ExtraSchedulers. "
    "sigmas: without the final 0. csv: a table. json: a schedule file of this budget. For masked diffusion: tokens revealed in "
    "each round, fractions masked before and after each, times in (0, 1], or LLaDA's num_transfer_tokens.",
)
@click.option("--budget", "-k", type=int, required=True, help="Number of steps.")
@click.option("--sampler", type=click.Choice(SAMPLERS), help="For diffusers-code.  [default: the schedule's own]")
@click.option("-o", "--output", type=click.Path(dir_okay=False), help="Output file.  [default: standard output]")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def export_command(
    schedules: str, target: str, budget: int, sampler: Sampler | None, output: str | None, as_json: bool
) -> None:
    """Export the schedule of one budget for another sampler.

    \b
    Examples:
      dpstride export out/schedules.json --to diffusers --budget 32
      dpstride export out/schedules.json --to csv --budget 32 -o path.csv
      dpstride export out/schedules.json --to diffusers-code --sampler dpmpp_2m --budget 12 -o draw.py
      dpstride export rounds/schedules.json --to tokens --budget 8
    """
    kind = kind_of(schedules)
    if target not in kind.forms and (target != JSON or kind is TOKENS):
        forms = kind.forms if kind is TOKENS else (*kind.forms, JSON)
        raise click.UsageError(
            f"{schedules} holds {kind.words}, which have no form {target!r}. Export them with --to {', '.join(forms)}."
        )
    if target == JSON and output is None:
        raise click.UsageError("--to json writes a file. Give -o FILE.")
    if sampler is not None and target != CODE:
        raise click.UsageError(f"--sampler is for --to {CODE}, not {target}. Leave it out.")
    if output is not None:
        check_apart(output, [schedules])
    schedule = kind.load(schedules)[budget]
    if target == JSON:
        schedule.save(output)
        _print(as_json, target, budget, output)
        return
    text = kind.forms[target](schedule) if sampler is None else schedule.diffusers_code(sampler)
    _write(as_json, target, budget, output, text=text)


def _write(as_json: bool, target: str, budget: int, output: str | None, *, text: str) -> None:
    text = text.rstrip("\n")
    if output is not None:
        write_text(output, text + "\n")
    _print(as_json, target, budget, output, text=text)


def _print(as_json: bool, target: str, budget: int, output: str | None, *, text: str = "") -> None:
    """Print the export, unless it went to a file; as JSON, with its form and budget."""
    if as_json:
        value = json.loads(text) if text.startswith("[") and target != "a1111" else text
        where = {"file": output} if output is not None else {"value": value}
        click.echo(json.dumps({"to": target, "budget": budget, **where}))
    elif output is None:
        click.echo(text)
