"""Stage 9. `dpstride completion`: the lines that teach a shell to complete verbs, options and files."""

from __future__ import annotations

import click

from .console import emit
from .options import output

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print what makes SHELL complete dpstride's words.")
@click.argument("shell", type=click.Choice(SHELLS))
@output
def completion_command(shell: str, as_json: bool, quiet: bool) -> None:
    """Print what makes SHELL complete verbs, options and files of dpstride when Tab is pressed.

    \b
    Examples:
      eval "$(dpstride completion bash)"                        in ~/.bashrc
      eval "$(dpstride completion zsh)"                         in ~/.zshrc
      dpstride completion fish > ~/.config/fish/completions/dpstride.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    # The lines themselves, without asking the installed bash for its version as click's own way does.
    completion = found(click.get_current_context().find_root().command, {}, "dpstride", "_DPSTRIDE_COMPLETE")
    lines = completion.source_template % completion.source_vars()
    emit(as_json, {"shell": shell, "lines": lines}, lines.rstrip("\n"))
