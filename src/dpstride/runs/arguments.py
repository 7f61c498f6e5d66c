"""Checks of the kind of arguments: two were swapped, a network was given for a Denoiser, or a set for one schedule.

A function's annotations say what its arguments must be, so that callers only name those that a user may get wrong. Classes
are looked up by name: an object of a class that is not imported yet cannot have been given.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import Parameter
from typing import Any, TypeVar

from ..reading.hints import hint

F = TypeVar("F", bound=Callable[..., Any])
_PACKAGE = __package__.partition(".")[0]
PATH = "str | os.PathLike[str]"
# Classes of arguments and their modules.
HOMES = {
    "Denoiser": "denoiser",
    "ForwardProcess": "process",
    "Schedule": "schedule",
    "ScheduleSet": "schedule",
    "Statistics": "statistics.artefact",
    "Trajectory": "statistics.trajectory_artefact",
}


def check_kinds(verb: Callable[..., Any], **arguments: Any) -> None:
    """Raise unless every argument of ``verb`` is what its annotation says; the error shows the order of all arguments."""
    for name, value in arguments.items():
        kind = verb.__annotations__[name]
        if is_kind(value, kind):
            continue
        wanted = {PATH: "a path", "Statistics": "Statistics"}.get(kind, f"a {kind}")
        raise ValueError(
            f"{verb.__name__}: {name} must be {wanted}, not {_described(value)}. The order is "
            f"{verb.__name__}({_order(verb)}).{_remedy(name, kind, value)}"
        )


def check_names(verb: Callable[..., Any], given: Iterable[str], known: type) -> None:
    """Raise unless every further keyword given to ``verb`` is a key of the typed dict ``known``."""
    names = list(known.__annotations__)
    for name in given:
        if name not in names:
            suggestion = hint(name, dict.fromkeys((*inspect.signature(verb).parameters, *names)))
            raise TypeError(
                f"{verb.__name__} has no argument {name!r}.{suggestion} Further keywords are {', '.join(names)}."
            )


def spelt_out(*records: type, defaults: type | None = None) -> Callable[[F], F]:
    """Show the fields of ``records``, which a function takes with ``**``, as keywords in its signature and in `help`.

    A record is a dataclass or a typed dict. The defaults of a typed dict's keys are those of the fields of ``defaults`` with
    the same names, else None.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        shown = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        for record in records:
            known = {each.name: each for each in fields(defaults or record)} if is_dataclass(defaults or record) else {}
            for name, annotation in inspect.get_annotations(record).items():
                default = _default(known[name]) if name in known else None
                kind = getattr(annotation, "__forward_arg__", annotation)  # as functions have it
                shown.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind))
        function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
        return function

    return decorate


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def is_kind(value: object, kind: str) -> bool:
    """Return whether ``value`` is what an annotation asks for."""
    if kind == PATH:
        return isinstance(value, (str, os.PathLike))
    home = sys.modules.get(f"{_PACKAGE}.{HOMES[kind]}")
    return home is not None and isinstance(value, getattr(home, kind))


def _order(verb: Callable[..., Any]) -> str:
    parameters = inspect.signature(verb).parameters.values()
    return ", ".join(
        each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD and each.name != "self"
    )


def _described(value: object) -> str:
    if value is None or isinstance(value, (bool, int, float, str)):
        return f"{value!r:.80}"
    return f"a {type(value).__name__}"


def _remedy(name: str, kind: str, value: Any) -> str:
    """Return how to get from the value given to the one meant, if that is known."""
    inner = getattr(value, name, None)
    if inner is not None and is_kind(inner, kind):
        return f" Give its .{name}."
    match kind:
        case "Denoiser" if callable(value) and not isinstance(value, type):
            return " Make one of a network: Denoiser(network, process, predicts=…)."
        case "Schedule" if is_kind(value, "ScheduleSet"):
            return f" Choose one of the set, for example schedules[{value.budgets[len(value.budgets) // 2]}]."
        case "Schedule" if isinstance(value, (int, list, tuple)):
            return " Take schedules[K] of a set, or make one: even_stride(process, K), or Schedule(process, steps)."
        case "ScheduleSet" if is_kind(value, "Schedule"):
            return " Make a set of it: ScheduleSet.of([schedule])."
        case "Statistics":
            return " estimate(denoiser, data) returns them, and Statistics.load(file) reads them."
    return ""
