"""Stage 0. Type checks of dataclass objects made from files, since Python itself does not check."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def check_types(value: Any) -> None:
    """Raise ValueError unless every field of a dataclass object, at any depth, has its declared type."""
    hints = get_type_hints(type(value))
    for field in fields(value):
        _check(getattr(value, field.name), hints[field.name], field.name)


def _check(value: Any, hint: Any, name: str) -> None:
    if not _fits(value, hint, name):
        raise ValueError(f"{name} is {value!r:.80}, not {getattr(hint, '__name__', hint)!s:.80}")


def _fits(value: Any, hint: Any, name: str) -> bool:
    origin, inner = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return True
    if origin in (Union, types.UnionType):
        return any(_fits(value, option, name) for option in inner)
    if origin is Literal:
        return any(value == option and type(value) is type(option) for option in inner)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if is_dataclass(hint):
        if type(value) is not hint:
            return False
        check_types(value)
        return True
    if origin in (dict, Mapping):
        return isinstance(value, dict) and all(
            _fits(key, inner[0], name) and _fits(each, inner[1], name) for key, each in value.items()
        )
    if origin is tuple and (len(inner) != 2 or inner[1] is not ...):
        return type(value) is tuple and len(value) == len(inner) and all(map(_fits, value, inner, [name] * len(inner)))
    if origin in (tuple, list, Sequence):
        return isinstance(value, tuple if origin is tuple else list) and all(_fits(v, inner[0], name) for v in value)
    return isinstance(value, hint)
