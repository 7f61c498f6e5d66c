"""Settings that every test shares; they must be in place before numpy, numba or torch is first imported."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

# Results do not depend on the number of threads, but the machine's other work does.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = str(min(2, int(os.environ.get("NUMBA_NUM_THREADS", "2"))))

import pytest
from hypothesis import settings

import tallies

# derandomize: a failure on one machine is a failure on every machine. No deadline: the first example imports torch.
settings.register_profile("dpstride", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("dpstride")


@pytest.fixture(autouse=True)
def no_check_beside_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most networks of tests are trained on nothing, and some tests count evaluations; tests/check turns it on."""
    monkeypatch.setattr("dpstride.checking.notice.LEAST", math.inf)


@pytest.fixture(autouse=True)
def tell_what_was_tried(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the report of every test say what it tried, in whichever process it runs."""
    yield
    request.node.user_properties += tallies.told()


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Let the report of every attack say its kind, in whichever process it runs."""
    for item in items:
        if (mark := item.get_closest_marker("attack")) is not None:
            item.user_properties.append(("attack", mark.args[0]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tables of what was tried and held."""
    for title, text in tallies.tables(terminalreporter.stats):
        terminalreporter.section(title)
        terminalreporter.write_line(text)
