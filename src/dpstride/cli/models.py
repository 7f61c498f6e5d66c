"""Stage 9. `dpstride models`: the embedded models and data sets."""

from __future__ import annotations

import click

from .console import emit
from .options import output


@click.command("models")
@output
def models_command(as_json: bool, quiet: bool) -> None:
    """List the embedded models with their held-out scores, and the embedded data sets.

    \b
    Example:
      dpstride models
    """
    from .. import zoo

    found = zoo.describe()
    lines = [
        f"{name:20} {facts['process']}, T = {facts['T']}, {facts['parameters']:,} parameters, "
        f"{facts['held_out']['bpd']:.2f} ± {facts['held_out']['standard_error']:.2f} bits/dim"
        for name, facts in found.items()
    ]
    tokens = {name: zoo.describe_masked(name) for name in zoo.masked_names()}
    lines += [
        f"{name:20} masked diffusion of {facts['length']} characters, {facts['parameters']:,} parameters, "
        f"{facts['held_out']['bits']:.2f} ± {facts['held_out']['standard_error']:.2f} bits/character"
        for name, facts in tokens.items()
    ]
    data = {**zoo.describe_data(), **zoo.describe_texts()}
    lines += ["", *(f"{name:20} {words}" for name, words in data.items())]
    emit(as_json, {"models": {**found, **tokens}, "data": list(data)}, "\n".join(lines))
