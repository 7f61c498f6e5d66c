"""Stage 9. `dpstride models`: what is embedded."""

from __future__ import annotations

import click

from .console import emit
from .options import output


@click.command("models")
@output
def models_command(as_json: bool, quiet: bool) -> None:
    """The embedded models, what each scores on held-out images, and the embedded data.

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
    lines += ["", *(f"{name:20} {words}" for name, words in zoo.describe_data().items())]
    emit(as_json, {"models": found, "data": list(zoo.data_names())}, "\n".join(lines))
