"""The page of masked diffusion: its numbers are those of the files, in a real browser."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import Browser

import dpstride
from dpstride import MaskedProcess, MaskedScheduleSet, MaskedStatistics
from dpstride.cli import _run
from dpstride.masked.comparison import compare_masked
from dpstride.masked.strides import RULES
from dpstride.options import BEST
from dpstride.report.again import write_again
from dpstride.report.masked_page import SavedMasked, masked_document, write_masked_page
from dpstride.report.page.pack import unpack

sys.path.insert(0, str(Path(__file__).parents[1] / "masked"))
N = 40
HOSTILE = "</script><script>window.hacked = 1</script>"


def statistics(seed: int, sizes: list[int] | None = None, name: str = "by formula") -> MaskedStatistics:
    """A masked token costs more the fewer are known; samples differ."""
    lengths = np.array(sizes or [N] * 6)
    rng = np.random.default_rng(seed)
    nats = (1.0 + 2.0 * (np.arange(N + 1) / N)[:, None] ** 6) * rng.uniform(0.9, 1.1, len(lengths))
    nats[0] = 0.0
    model = {"name": name, "fingerprint": "0" * 16, "vocabulary": 40, "shifted": False}
    identity = {"model": model, "data": {"fingerprint": f"{seed:016x}", "samples": len(lengths)}, "seed": seed}
    return MaskedStatistics(MaskedProcess(N), nats, lengths, np.arange(len(lengths)), identity)


def save(folder: Path, name: str = "by formula", sizes: list[int] | None = None) -> Path:
    folder.mkdir()
    choosing, heldout = statistics(0, sizes, name), statistics(1, sizes, name)
    choosing.save(folder / "statistics.safetensors")
    heldout.save(folder / "heldout.safetensors")
    dpstride.masked_schedules(choosing).save(folder / "schedules.json")
    write_masked_page(folder)
    return folder


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(tmp_path_factory.mktemp("masked") / "out")


def test_every_number_is_that_of_the_files(browser: Browser, found: Path) -> None:
    browser.open(found)
    schedules = MaskedScheduleSet.load(found / "schedules.json")
    comparison = compare_masked(schedules, statistics(1), statistics(0), schedules.budgets)
    for K in (1, 5, N):
        browser.choose(K)
        shown = {rule: [f"{number:.3f}" for number in curve[K]] for rule, curve in comparison.curves.items()}
        assert browser.shown() == (K, shown)
        forms = {row[0]: row[1] for row in browser.cells("#forms")}
        tokens = list(schedules[K].tokens_per_round)
        assert json.loads(forms["tokens per roundschedule.tokens_per_round"]) == tokens
        assert json.loads(forms["LLaDAnum_transfer_tokens, one row"]) == schedules[K].num_transfer_tokens().tolist()
        assert json.loads(forms["masked tokensbefore each round, and 0"]) == list(schedules[K].counts)
        assert json.loads(forms["times in (0, 1]at which each round begins"]) == list(schedules[K].times)
        rows = browser.listing()
        assert [int(row[3]) for row in rows] == tokens
        # The page shows three significant digits of each.
        assert sum(float(row[5]) for row in rows) == pytest.approx(comparison.curves[BEST][K][0], rel=5e-3)
    assert browser.complaints() == []
    assert len(browser.requests()) == 1


def test_the_answer_is_that_of_the_scores_for_any_tolerance(browser: Browser, found: Path) -> None:
    browser.open(found)
    schedules = MaskedScheduleSet.load(found / "schedules.json")
    comparison = compare_masked(schedules, statistics(1), statistics(0), schedules.budgets)
    best = comparison.curves[BEST]
    for tolerance in (0.01, 0.5):
        browser.script(
            f"[...document.querySelectorAll('#tolerances button')].find((b) => b.textContent === '{tolerance}').click()"
        )
        least = min(bits for bits, _ in best.values())
        enough = min(K for K, (bits, _) in best.items() if bits <= least + tolerance)
        words = f"{enough} round{'s are' if enough > 1 else ' is'} within {tolerance} bits/token of all {N}"
        assert words in browser.text("#answer")
        assert comparison.sentence(tolerance).split(" (")[0] + "." == browser.text("#answer")  # what `find` prints
    assert "random order" in browser.text("#caveat")


def test_lanes_bars_and_stairs_follow_the_budget(browser: Browser, found: Path) -> None:
    browser.open(found)
    browser.choose(3)
    marks = (
        "return [...document.querySelectorAll('#path .marks')].map((m) => m.getAttribute('d').split('M').length - 1)"
    )
    assert browser.script(marks) == [4] * 5  # even times have no fixed numbers, so no lane
    bars = "return document.querySelector('#tokens .bars').getAttribute('d').split('M').length - 1"
    assert browser.script(bars) == 3
    assert browser.script("return document.querySelectorAll('#profile .paid-line, #profile .profile').length") == 2
    for figure in ("path", "tokens", "profile"):
        assert browser.script(f"return document.querySelector('#{figure} svg').getAttribute('aria-label')")


def test_it_fits_narrow_screens_and_both_themes(browser: Browser, tmp_path: Path) -> None:
    page = save(tmp_path / "out", name="a-very-long-name" * 20)
    for width, scheme in ((320, "light"), (380, "dark"), (1200, "dark")):
        browser.open(page, width=width, scheme=scheme)
        browser.script("for (const each of document.querySelectorAll('details')) each.open = true")
        for K in (1, 7, N):
            browser.choose(K)
            assert browser.script("return document.documentElement.scrollWidth") <= width


def test_names_of_others_are_text(browser: Browser, tmp_path: Path) -> None:
    browser.open(save(tmp_path / "out", name=HOSTILE))
    assert browser.script("return window.hacked") is None
    assert HOSTILE in browser.text("#model")


def test_samples_of_different_lengths_have_neither_even_times_nor_costs_of_rounds(tmp_path: Path) -> None:
    saved = SavedMasked.read(save(tmp_path / "out", sizes=[N, N, 30, 12]))
    document = masked_document(saved)
    assert set(document["curves"]) == {*RULES, BEST} - {"linear_times"}
    assert not document["exact"]
    assert unpack(document["profile"]["counts"]).tolist() == list(range(1, N + 1))


def test_report_writes_it_again_with_the_notes_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from joints import topics

    monkeypatch.chdir(tmp_path)
    texts = topics().draw(12)
    made = dpstride.find(topics().denoiser(), texts, "out", texts[:4], progress=False)
    assert made.files[0].name == "report.html"
    before = (tmp_path / "out" / "report.html").read_bytes()
    (tmp_path / "out" / "report.html").unlink()
    assert _run(["report", "out"]) == 0
    assert "random order" in capsys.readouterr().out
    assert (tmp_path / "out" / "report.html").read_bytes() == before
    assert b"also used to choose them" in before
    statistics(1).save(tmp_path / "out" / "heldout.safetensors")
    with pytest.raises(ValueError, match="tokens"):
        write_again(tmp_path / "out", tmp_path / "out")
    (tmp_path / "out" / "heldout.safetensors").unlink()
    with pytest.raises(ValueError, match=r"holds no heldout\.safetensors"):
        write_again(tmp_path / "out", tmp_path / "out")


def test_files_of_different_models_are_refused(tmp_path: Path) -> None:
    page = save(tmp_path / "out")
    other = statistics(1)
    other.identity["model"]["fingerprint"] = "1" * 16
    other.save(page / "heldout.safetensors")
    with pytest.raises(ValueError, match="files are of different models"):
        SavedMasked.read(page)
