"""Signatures of the reference pages as `help` shows them: with every keyword that a function takes by way of a record."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import griffe


class SpeltOut(griffe.Extension):
    """Take the parameters of functions decorated with `spelt_out` from the functions themselves."""

    def on_function_instance(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace what the source alone says."""
        if not any("spelt_out" in str(each.value) for each in func.decorators):
            return
        module, _, name = func.path.rpartition(".")
        shown = inspect.signature(getattr(import_module(module), name)).parameters.values()
        func.parameters = griffe.Parameters(
            *(
                griffe.Parameter(
                    each.name,
                    annotation=each.annotation,
                    kind=griffe.ParameterKind[each.kind.name.lower()],
                    default=None if each.default is each.empty else repr(each.default),
                )
                for each in shown
            )
        )
