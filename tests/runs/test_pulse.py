"""Lines about what is being done and for how long, where no progress bar says so."""

from __future__ import annotations

import re
import sys
import time

import pytest

from dpstride.runs.pulse import Pulse


def wait_for(said: list[str], count: int) -> None:
    until = time.monotonic() + 20.0
    while len(said) < count and time.monotonic() < until:
        time.sleep(0.01)


def test_what_is_being_done_is_said_again_and_again() -> None:
    said: list[str] = []
    with Pulse(said.append, seconds=0.02) as pulse:
        pulse.doing("Looking")
        wait_for(said, 2)
        pulse.doing("Thinking")
        wait_for(said, 6)
    assert len(said) >= 6
    assert all(re.fullmatch(r"(Looking|Thinking): \d+ s so far", line) for line in said)
    assert said[0].startswith("Looking")
    assert said[-1].startswith("Thinking")
    count = len(said)
    time.sleep(0.1)
    assert len(said) == count, "nothing is said after the end"


def test_lines_are_passed_on_and_put_it_off() -> None:
    said: list[str] = []
    with Pulse(said.append, seconds=30.0) as pulse:
        pulse.doing("Looking")
        pulse.say("found")
    assert said == ["found"]


def test_a_terminal_with_bars_has_no_such_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    said: list[str] = []
    with Pulse(said.append, bars=True, seconds=0.01) as pulse:
        pulse.doing("Looking")
        time.sleep(0.1)
    assert said == []
    with Pulse(said.append, bars=False, seconds=0.01) as pulse:
        pulse.doing("Looking")
        wait_for(said, 1)
    assert said


def test_an_error_ends_it() -> None:
    pulse = Pulse(print, seconds=30.0)

    def work() -> None:
        with pulse:
            raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        work()
    assert not pulse._thread.is_alive()
