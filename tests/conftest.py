"""Settings that every test shares; they must be in place before numpy, numba or torch is first imported."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import Any

# Results do not depend on the number of threads, but the machine's other work does.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = str(min(2, int(os.environ.get("NUMBA_NUM_THREADS", "2"))))

import pytest
from hypothesis import settings

# derandomize: a failure on one machine is a failure on every machine. No deadline: the first example imports torch.
settings.register_profile("dpstride", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("dpstride")


@pytest.fixture(autouse=True)
def no_check_beside_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most networks of tests are trained on nothing, and some tests count evaluations; tests/check turns it on."""
    monkeypatch.setattr("dpstride.checking.notice.LEAST", math.inf)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Let the report of every attack say its kind, in whichever process it runs."""
    for item in items:
        if (mark := item.get_closest_marker("attack")) is not None:
            item.user_properties.append(("attack", mark.args[0]))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The table of attacks by kind."""
    tried: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            kind = dict(getattr(report, "user_properties", ())).get("attack")
            if kind is not None:
                tried[kind] += 1
                held[kind] += outcome == "passed"
    if tried:
        terminalreporter.section("attacks")
        rows = [*((kind, tried[kind], held[kind]) for kind in sorted(tried)), ("all", tried.total(), held.total())]
        lines = ["| attacks | tried | held |", "|---|---|---|", *(f"| {a} | {b:,} | {c:,} |" for a, b, c in rows)]
        terminalreporter.write_line("\n".join(lines))
