"""The trade-off of `find --objective mixed` on the page, from a real run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from browser import Browser
from folders import rewrite

from dpstride import ScheduleSet
from dpstride.cli import _run
from dpstride.report.front import Front
from mixture_model import write_mixture


@pytest.fixture
def mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_mixture(tmp_path, "front_model", samples=40)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["find", "front_model:model", "data.npy", "-o", "out", "--samples", "20", "--heldout-samples", "16", "-q"]
    assert _run([*words, "--objective", "mixed", "--lambda", "5", "--trajectories", "12", "--budgets", "4,8"]) == 0
    return tmp_path / "out"


def test_the_trade_off_is_drawn_and_listed(browser: Browser, mixed: Path) -> None:
    front = Front.load(mixed / "front.json")
    browser.open(mixed)
    assert browser.complaints() == []
    rows = browser.script(
        "return [...document.querySelectorAll('#front-table tbody tr')].map((r) => [...r.cells].map((c) => c.textContent))"
    )
    points = [(K, point) for K, points in front.budgets.items() for point in points]
    assert [(int(row[0]), float(row[1])) for row in rows] == [(K, round(point.heldout_bpd, 3)) for K, point in points]
    assert [float(row[2]) for row in rows] == pytest.approx([math.sqrt(p.trajectory_cost) for _, p in points], rel=5e-3)
    taken = [(int(row[0]), number) for number, row in enumerate(rows) if "this report" in row[3]]
    schedules = ScheduleSet.load(mixed / "schedules.json")
    assert [K for K, _ in taken] == [4, 8]
    assert all(points[number][1].steps == schedules[K].steps for K, number in taken)
    radii = browser.script(
        "return [...document.querySelectorAll('#front circle')].map((c) => Number(c.getAttribute('r')))"
    )
    assert len(radii) == len(points)
    assert [number for number, radius in enumerate(radii) if radius == max(radii)] == [number for _, number in taken]
    # Pointing at a dot says what it is.
    browser.script("document.getElementById('front').scrollIntoView({block: 'center'})")
    browser.script(
        "const dot = document.querySelectorAll('#front circle')[0].getBoundingClientRect();"
        "document.querySelector('#front svg').dispatchEvent(new PointerEvent('pointermove', "
        "{clientX: dot.x + dot.width / 2, clientY: dot.y + dot.height / 2, bubbles: true}))"
    )
    assert f"{points[0][1].heldout_bpd:.3f} bits/dim" in browser.text("#front .tip")
    browser.open(mixed, width=380)
    assert browser.script("return document.documentElement.scrollWidth") <= 380


def test_one_of_another_run_is_refused_and_one_of_another_objective_left_out(
    mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rewrite(mixed / "front.json", **{"lambda": 7.0})
    assert _run(["report", str(mixed)]) == 2
    assert "front.json is for λ = 7 and schedules.json for 5" in capsys.readouterr().err
    document = ScheduleSet.load(mixed / "schedules.json")
    options = {name: value for name, value in document.options.items() if name not in ("lambda", "objective")}
    rewrite(mixed / "front.json", **{"lambda": 5.0})
    replace(document, options=options).save(mixed / "schedules.json")
    assert _run(["report", str(mixed)]) == 0
    assert '"front":null' in (mixed / "report.html").read_text(encoding="utf-8")
