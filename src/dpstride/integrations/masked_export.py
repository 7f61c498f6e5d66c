"""Unmasking schedules in the forms that samplers of tokens take, by the name that `dpstride export --to` has for each."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..masked.schedule import MaskedSchedule


def to_csv(schedule: MaskedSchedule) -> str:
    """A table of the rounds: tokens masked before and after each, and revealed in it."""
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(("round", "masked_before", "masked_after", "revealed", "time"))
    for number, (revealed, time) in enumerate(zip(schedule.tokens_per_round, schedule.times, strict=True), start=1):
        before, after = schedule.counts[number - 1 : number + 1]
        rows.writerow((number, before, after, revealed, time))
    return table.getvalue()


FORMS: dict[str, Callable[[MaskedSchedule], str]] = {
    "tokens": lambda schedule: json.dumps(schedule.tokens_per_round),
    "fractions": lambda schedule: json.dumps(schedule.fractions),
    "times": lambda schedule: json.dumps(schedule.times),
    "llada": lambda schedule: json.dumps(schedule.num_transfer_tokens().tolist()),
    "csv": to_csv,
}


def masked_form(schedule: MaskedSchedule, target: str) -> str:
    """The text of an export."""
    if target not in FORMS:
        raise ValueError(
            f"--to {target} is for diffusion of numbers, and these are unmasking schedules of tokens. Export them --to "
            f"{', '.join(FORMS)}."
        )
    return FORMS[target](schedule)
