"""Stage 9. Options that several verbs share."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from ..options import DECODERS as DECODER_NAMES, DEFAULT_DECODER, VARIANCES as VARIANCE_NAMES

VARIANCES = click.Choice(VARIANCE_NAMES)
MADE_FROM_OUTPUT = 40  # bytes that temporary and neighbouring files add to the name of an output
INSIDE_OUTPUT = 200  # bytes that files in an output folder, or in one beside it, add to its path
DECODERS = click.Choice(DECODER_NAMES)


class Range(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """uint8, continuous, or n:low:high."""

    name = "uint8|continuous|n:low:high"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as `dpstride.estimate` takes it."""
        if value in ("uint8", "continuous") or not isinstance(value, str):
            return value
        try:
            levels, low, high = value.split(":")
            return ("levels", int(levels), float(low), float(high))
        except ValueError:
            return self.fail(f"{value!r} is not 'uint8', 'continuous' or n:low:high, for example 16:-1:1.", param, ctx)


class Real(click.FloatRange):
    """A number in a range, finite unless ``infinite`` allows infinity; click's own comparisons would let NaN pass."""

    def __init__(self, *arguments: Any, infinite: bool = False, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.infinite = infinite

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return it as a float."""
        number = super().convert(value, param, ctx)
        if math.isfinite(number) or (self.infinite and number == math.inf):
            return number
        return self.fail(f"{value} is not a finite number.", param, ctx)


class Budgets(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on
    """Numbers of steps, separated by commas."""

    name = "K,K,…"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value as `dpstride.estimate_adaptively` takes it."""
        if not isinstance(value, str):
            return value
        try:
            return tuple(int(number) for number in value.split(","))
        except ValueError:
            return self.fail(f"{value!r} is not whole numbers separated by commas, for example 8,16,32.", param, ctx)


Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completes(names: Callable[[], Iterable[str]]) -> Complete:
    """Return a completion of files, and of embedded names that begin as typed."""

    def complete(ctx: click.Context, param: click.Parameter, typed: str) -> list[CompletionItem]:
        fitting = [CompletionItem(name) for name in names() if name.startswith(typed)]
        return [CompletionItem(typed, type="file"), *fitting]

    return complete


def _models() -> Iterable[str]:
    from .. import zoo

    return (*zoo.names(), *zoo.masked_names())


def _data() -> Iterable[str]:
    from .. import zoo

    return (*zoo.data_names(), *zoo.text_names())


complete_model, complete_data, complete_file = _completes(_models), _completes(_data), _completes(tuple)
model_argument = click.argument("model", shell_complete=complete_model)
data_argument = click.argument("data", shell_complete=complete_data)
heldout_option = click.option(
    "--heldout",
    metavar="DATA",
    shell_complete=complete_data,
    help="Data to score on.  [default: a seeded, disjoint part of DATA]",
)


conditioning_option = click.option(
    "--conditioning",
    metavar="FILE",
    shell_complete=complete_file,
    help="Prompts (.txt, one per line) or labels of DATA, if they are not stored with its samples.",
)


def options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Combine shared options into one decorator; help lists them in the order given."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


work = options(
    click.option(
        "--seed",
        default=0,
        show_default=True,
        help="Random seed for the noise; in find, tune, study and check also for the order of DATA, even if all is used.",
    ),
    click.option("--batch-size", default=64, show_default=True, help="Samples per network pass."),
    click.option(
        "--data-range", type=Range(), help="Values of the data.  [default: what the model takes, usually uint8]"
    ),
)
RUNNING = "dpstride.running"  # key in a command's context: how to run its network


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    context.meta.setdefault(RUNNING, {})[parameter.name] = value


model_option = options(
    click.option(
        "--model-option",
        "-M",
        "model_options",
        multiple=True,
        callback=lambda context, parameter, values: _pairs(values),
        metavar="KEY=VALUE",
        help="Option for the loader of MODEL, e.g. preset=cifar10-l-hybrid for an OpenAI checkpoint; may be repeated.",
    ),
    click.option(
        "--compile",
        is_flag=True,
        expose_value=False,
        callback=_remember,
        help="Compile the network (torch.compile), which takes a minute or two and makes passes faster.",
    ),
    click.option(
        "--autocast",
        type=click.Choice(["bfloat16", "float16"]),
        expose_value=False,
        callback=_remember,
        help="Run parts of the network in this precision (torch.autocast); for GPUs.",
    ),
)
variance_and_decoder = options(
    click.option("--variance", type=VARIANCES, help="Reverse variance.  [default: the model's own]"),
    click.option(
        "--decoder", type=DECODERS, default=DEFAULT_DECODER, show_default=True, help="Variance of the last step."
    ),
)
costs = options(
    variance_and_decoder, click.option("--max-budget", type=int, help="Largest number of steps.  [default: all]")
)
adaptive = options(
    click.option(
        "--tolerance",
        type=Real(min=0.0, min_open=True),
        default=0.01,
        show_default=True,
        help="Evaluate until paths are within this many bits/dim of the best, with 95% confidence; with --for samples, within "
        "this share of their cost.",
    ),
    click.option(
        "--budgets", type=Budgets(), help="Numbers of steps that the tolerance applies to.  [default: 8,16,32,64]"
    ),
)
skip_nonfinite = click.option(
    "--skip-nonfinite",
    is_flag=True,
    help="Skip samples for which the network returns NaN or infinity, and report them.",
)
overwrite = click.option(
    "--overwrite",
    is_flag=True,
    help="Replace results of another run in the output. Statistics of the same model, data, seed and steps are reused.",
)
output_folder = click.option(
    "-o", "--output", required=True, type=click.Path(file_okay=False, path_type=Path), help="Output folder."
)
run_arguments = options(model_argument, data_argument, output_folder, heldout_option)
dry_run = click.option(
    "--dry-run", is_flag=True, help="Only print what would be done, with network evaluations and expected time."
)
output = options(
    click.option("--json", "as_json", is_flag=True, help="Print the result as JSON."),
    click.option("--quiet", "-q", is_flag=True, help="Print only the result."),
)
run_options = options(work, skip_nonfinite, overwrite, output)


def target_folder(words: str) -> Callable[[Any], Any]:
    """Return the option for an output folder of a verb that reads other folders."""
    return click.option("-o", "--output", "target", type=click.Path(file_okay=False, path_type=Path), help=words)


def _pairs(values: tuple[str, ...]) -> tuple[tuple[str, Any], ...]:
    """Parse KEY=VALUE pairs; a value that is JSON (a number, true, a list) is parsed as such, any other is text."""
    pairs = []
    for value in values:
        key, separator, text = value.partition("=")
        if not separator or not key.isidentifier():
            raise click.BadParameter(f"{value!r} is not KEY=VALUE.")
        try:
            pairs.append((key, json.loads(text)))
        except ValueError:
            pairs.append((key, text))
    return tuple(pairs)


def running() -> dict[str, Any]:
    """Return the options --compile and --autocast as the user typed them."""
    context = click.get_current_context(silent=True)
    asked = {} if context is None else context.meta.get(RUNNING, {})
    return {name: value for name, value in asked.items() if value}


def check_output_name(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse an --output whose name, or a name made from it, is too long for its file system, before any work."""
    if value is None:
        return value
    path = Path(value)
    there = next(folder for folder in (*path.absolute().parents, Path("/")) if os.path.isdir(folder))
    longest, whole = (os.pathconf(there, name) for name in ("PC_NAME_MAX", "PC_PATH_MAX"))
    allowed = [longest] * (len(path.parts) - 1) + [longest - MADE_FROM_OUTPUT]
    for name, most in ((str(path), whole - INSIDE_OUTPUT), *zip(path.parts, allowed, strict=True)):
        if (length := len(os.fsencode(name))) > most:
            raise click.BadParameter(
                f"{name[:40]!r}… is a name of {length} bytes, and at most {most} can be used here. Give a shorter one."
            )
    return value


def given(parameter: str) -> bool:
    """Return whether the user typed an option, rather than leaving it at its default."""
    return click.get_current_context().get_parameter_source(parameter) is click.core.ParameterSource.COMMANDLINE


def check_eta(sampler: str, eta: float) -> None:
    """Refuse --eta for a sampler without such noise."""
    from ..samplers import find, with_eta

    if eta > 0.0 and not find(sampler).takes_eta:
        raise click.UsageError(
            f"--eta is the noise of --sampler {with_eta()}; {sampler} does not have it. Leave it out."
        )


checks = click.option(
    "--check/--no-check",
    default=True,
    show_default=True,
    help="Check that MODEL is described correctly, like dpstride check.",
)
