"""Export of saved schedules of every kind in the forms that samplers take, under their names in `dpstride export --to`."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError

if TYPE_CHECKING:
    from ..masked.schedule import MaskedSchedule, MaskedScheduleSet
    from ..schedule import ScheduleSet


@dataclass(frozen=True)
class Kind:
    """Schedules of one kind of diffusion.

    Attributes:
        words: the kind in words.
        load: path → a set of schedules.
        forms: name of a form → function that writes one schedule as text.
    """

    words: str
    load: Callable[[str], Any]
    forms: Mapping[str, Callable[[Any], str]]


def _by(name: str, write: Callable[[Any], str] = str) -> Callable[[Any], str]:
    """Return the form made by a function of `export`."""

    def form(schedule: Any) -> str:
        from . import export

        return write(getattr(export, name)(schedule))

    return form


def _load_schedules(path: str) -> ScheduleSet:
    from ..schedule import ScheduleSet

    return ScheduleSet.load(path)


def _load_unmasking(path: str) -> MaskedScheduleSet:
    from ..masked.schedule import MaskedScheduleSet

    return MaskedScheduleSet.load(path)


def rounds_to_csv(schedule: MaskedSchedule) -> str:
    """Return a CSV table of rounds: tokens masked before and after each, and tokens revealed in it."""
    table = io.StringIO()
    rows = csv.writer(table, lineterminator="\n")
    rows.writerow(("round", "masked_before", "masked_after", "revealed", "time"))
    for number, (revealed, time) in enumerate(zip(schedule.tokens_per_round, schedule.times, strict=True), start=1):
        before, after = schedule.counts[number - 1 : number + 1]
        rows.writerow((number, before, after, revealed, time))
    return table.getvalue()


CODE = "diffusers-code"  # the only form that depends on the sampler
NUMBERS = Kind(
    "schedules of numbers",
    _load_schedules,
    {
        "diffusers": _by("for_diffusers", json.dumps),
        CODE: lambda schedule: schedule.diffusers_code(),
        "improved-diffusion": _by("timestep_respacing"),
        "k-diffusion": _by("sigmas", lambda levels: json.dumps([*levels, 0.0])),
        "comfyui": _by("for_comfyui"),
        "a1111": _by("for_a1111"),
        "sigmas": _by("sigmas", json.dumps),
        "csv": _by("to_csv"),
    },
)
TOKENS = Kind(
    "unmasking schedules of tokens",
    _load_unmasking,
    {
        "tokens": lambda schedule: json.dumps(schedule.tokens_per_round),
        "fractions": lambda schedule: json.dumps(schedule.fractions),
        "times": lambda schedule: json.dumps(schedule.times),
        "llada": lambda schedule: json.dumps(schedule.num_transfer_tokens().tolist()),
        "csv": rounds_to_csv,
    },
)


def kind_of(path: str) -> Kind:
    """Return the kind of schedules in a file, by its format."""
    from ..masked.schedule import FORMAT

    try:
        return TOKENS if read_json_object(path).get("format") == FORMAT else NUMBERS
    except UnreadableFileError:  # its reader raises the error
        return NUMBERS
