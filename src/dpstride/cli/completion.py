"""Stage 9. `dpstride completion`: the shell script that completes verbs, options and files."""

from __future__ import annotations

import click

from .console import emit
from .options import output

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print a completion script for SHELL.")
@click.argument("shell", type=click.Choice(SHELLS))
@output
def completion_command(shell: str, as_json: bool, quiet: bool) -> None:
    """Print a script that lets SHELL complete verbs, options and files of dpstride when Tab is pressed.

    \b
    Examples:
      eval "$(dpstride completion bash)"                        in ~/.bashrc
      eval "$(dpstride completion zsh)"                         in ~/.zshrc
      dpstride completion fish > ~/.config/fish/completions/dpstride.fish
    """
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    assert found is not None
    # Rendered here, because click's own way asks the installed bash for its version.
    completion = found(click.get_current_context().find_root().command, {}, "dpstride", "_DPSTRIDE_COMPLETE")
    lines = completion.source_template % completion.source_vars()
    emit(as_json, {"shell": shell, "lines": lines}, lines.rstrip("\n"))
