"""What the page is given, without a browser: every number in it against the files that it was made from."""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import HOSTILE, T, formula_statistics, long_grid, rewrite, save_formula
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from dpstride import ForwardProcess, ScheduleSet, Statistics, UnreadableFileError, elbo_costs, score
from dpstride.cli import _run
from dpstride.evaluate.ablation import Ablation
from dpstride.evaluate.comparison import Comparison
from dpstride.evaluate.stream import image_features
from dpstride.report.page import write_page
from dpstride.report.page.document import page_document
from dpstride.report.page.pack import TYPES, pack, unpack
from dpstride.report.page.saved import Saved
from dpstride.runs.record import Run
from dpstride.study.agreement import agree
from dpstride.study.results import Distance, StudyResults
from dpstride.study.run import no_features


def paths_in(document: dict[str, Any]) -> dict[int, tuple[int, ...]]:
    """The paths of a document, by the format's own words: bit i is index i, masks differ from the one before."""
    masks = unpack(document["paths"]["masks"]).reshape(-1, document["paths"]["bytes"])
    visited = np.unpackbits(np.bitwise_xor.accumulate(masks, axis=0), axis=1, bitorder="little")
    return {
        int(K): tuple(np.flatnonzero(row)[::-1].tolist())
        for K, row in zip(unpack(document["budgets"]), visited, strict=True)
    }


def study_in(folder: Path) -> StudyResults:
    """Results of a study, made up where they need samples, in a folder of a demo."""
    import torch

    comparison, schedules = Comparison.load(folder / "comparison.json"), ScheduleSet.load(folder / "schedules.json")
    distances = [
        Distance(stride, K, 50, 3.0 + K % 7 + i, 0.02 * i - 0.01, 0.004, *comparison.curves[stride][K])
        for K in (4, 16)
        for i, stride in enumerate(("even", "quadratic", "dp"))
    ]
    distances.append(Distance("all", T, 20, 2.5, 0.001, math.nan, *comparison.curves["dp"][T]))
    rng = np.random.default_rng(0)
    bpd = tuple(tuple(tuple(4.0 + rng.uniform(0.0, 4.0 / size, 2)) for _ in range(3)) for size in (8, 32))
    results = StudyResults(
        model=comparison.model,
        process={"name": schedules.process.name, "kind": "discrete", "T": T},
        data={
            "choosing": {"samples": 256, "seed": 0},
            "heldout": {"samples": 256, "seed": 1},
            "reference": {"name": "draws", "images": 256},
        },
        options=comparison.options,
        settings={"sampler": "ancestral"},
        curves=comparison.curves,
        paths={4: schedules[4].times},
        features={"distance": f"Fréchet distance {HOSTILE}"},
        distances=tuple(distances),
        floor=Distance("real", 0, 50, 0.5, 0.0, 0.001),
        ablation=Ablation((8, 32, 128), (8, 16), (*bpd, ((4.0, 4.0),)), "sample", 1.0),
        agreement=agree([(each.budget, each.bpd or 0.0, each.frechet) for each in distances]),
        notes=("A note of the study.",),
    )
    results.save(folder / "results.json")
    (folder / "features").mkdir()
    images = torch.from_numpy(rng.integers(0, 256, (10, 1, 4, 4), dtype=np.uint8))
    for name in ("reference", "dp-32", "even-32", "quadratic-32", f"all-{T}"):
        image_features(images, no_features(), folder / "features" / f"{name}.safetensors", keep=10)
    return StudyResults.load(folder / "results.json")


# --- arrays as text -----------------------------------------------------------------------------------------------------


@given(st.data(), st.sampled_from(sorted(TYPES)), st.integers(0, 40))
def test_arrays_come_back_bit_for_bit(data: st.DataObject, kind: str, size: int) -> None:
    values = data.draw(arrays(TYPES[kind], size))
    assert unpack(json.loads(json.dumps(pack(values, kind)))).tobytes() == values.tobytes()


# --- numbers ------------------------------------------------------------------------------------------------------------


def test_paths_and_curves_are_those_of_the_files(demo: Path) -> None:
    document = page_document(Saved.read(demo))
    schedules, comparison = ScheduleSet.load(demo / "schedules.json"), Comparison.load(demo / "comparison.json")
    assert paths_in(document) == {K: schedules[K].steps for K in range(1, T + 1)}
    for stride, columns in document["curves"].items():
        expected = [comparison.curves[stride][K] for K in range(1, T + 1)]
        assert unpack(columns["bpd"]).tolist() == [bpd for bpd, _ in expected]
        assert unpack(columns["error"]) == pytest.approx([error for _, error in expected], rel=1e-6)
    assert unpack(document["grid"]["sigmas"])[1:] == pytest.approx(
        schedules.process.g[1:] / schedules.process.f[1:], rel=1e-15
    )
    assert json.dumps(document, allow_nan=False)


def step_costs(document: dict[str, Any], path: tuple[int, ...], place: int) -> list[float]:
    steps = document["steps"]
    starts = np.append(0, np.cumsum(unpack(steps["counts"]).astype(int)))
    gaps, costs = unpack(steps["gaps"]), unpack(steps["bpd"])
    found = []
    for t, s in itertools.pairwise(path[:-1]):
        (at,) = np.flatnonzero(gaps[starts[t] : starts[t + 1]] == t - s)
        found.append(float(costs[starts[t] + at]))
    return [*found, float(unpack(steps["last"])[place])]


@pytest.mark.parametrize("decoder", ["optimal", "respaced"])
def test_costs_of_steps_are_those_of_score(tmp_path: Path, decoder: Any) -> None:
    """The respaced decoder too, whose last step costs what the one before it makes it cost."""
    folder = save_formula(tmp_path / "found", ForwardProcess.linear(24), decoder)
    heldout, schedules = Statistics.load(folder / "heldout.safetensors"), ScheduleSet.load(folder / "schedules.json")
    document = page_document(Saved.read(folder))
    paths = paths_in(document)
    assert sorted(paths) == schedules.budgets == list(range(2 if decoder == "respaced" else 1, 25))
    for place, K in enumerate(schedules.budgets):
        (expected,) = score(heldout, [schedules[K]])
        costs = step_costs(document, paths[K], place)
        assert costs == pytest.approx([*expected.terms["steps"], expected.terms["decoder"]], rel=1e-6)
        prior = unpack(document["steps"]["prior"])[place]
        assert sum(costs) + prior == pytest.approx(expected.bpd, abs=1e-6)


def test_the_heat_map_is_the_table(demo: Path) -> None:
    heat = page_document(Saved.read(demo))["heat"]
    indices, levels = unpack(heat["indices"]).tolist(), unpack(heat["levels"]).tolist()
    assert indices == list(range(T + 1))  # a short grid is whole
    L = elbo_costs(Statistics.load(demo / "heldout.safetensors")).L / (16 * math.log(2.0))
    cells = [(t, s) for t in range(1, T + 1) for s in range(t)]
    assert len(cells) == len(levels)
    for (t, s), level in zip(cells, levels, strict=True):
        value = 10 ** (heat["low"] + (level - 1) / 65534 * (heat["high"] - heat["low"]))
        assert value == pytest.approx(max(L[t, s], 1e-5), rel=1e-3)


def test_budgets_are_thinned_only_where_the_page_would_be_too_large(tmp_path: Path) -> None:
    saved = long_grid(tmp_path / "long", steps=700)
    whole = page_document(saved)
    assert unpack(whole["budgets"]).tolist() == list(range(1, 701))
    assert whole["dropped"] == 0
    limit = len(json.dumps(whole)) * 3 // 4
    thinned = page_document(saved, limit)
    budgets = unpack(thinned["budgets"]).tolist()
    assert len(json.dumps(thinned)) <= limit + 100
    assert budgets[:256] == list(range(1, 257))
    assert budgets[-1] == 700
    assert thinned["dropped"] == 700 - len(budgets) > 0
    assert paths_in(thinned) == {K: saved.schedules.entries[K][0] for K in budgets}
    assert unpack(page_document(saved, 10)["budgets"]).tolist() == [*range(1, 257), 700]  # never fewer


@pytest.mark.torture
@pytest.mark.skipif(not os.environ.get("DPSTRIDE_TORTURE"), reason="make torture")
def test_a_solved_grid_of_4000_steps_stays_below_3_mb(tmp_path: Path) -> None:
    folder = save_formula(tmp_path / "solved", ForwardProcess.cosine(4000))
    assert write_page(folder).stat().st_size < 3_000_000
    assert page_document(Saved.read(folder))["dropped"] == 0


# --- one file, from files of one run ------------------------------------------------------------------------------------


def test_the_page_is_one_file_that_names_no_address(copied: Path) -> None:
    rewrite(copied / "comparison.json", model={"name": HOSTILE})
    text = write_page(copied).read_text(encoding="utf-8")
    addresses = set(re.findall(r"(?:https?:)?//[a-z][\w.-]+\.[a-z]+[^\s'\"]*", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of SVG, which nobody fetches
    assert len(re.findall(r"<script", text)) == 2
    assert len(re.findall(r"</script", text)) == 2
    assert "<img" not in text
    assert "@import" not in text
    assert "url(" not in text.replace("url(#", "")


def test_report_makes_the_same_page_again_and_asks_no_network(
    copied: Path, demo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import dpstride.denoiser

    monkeypatch.setattr(dpstride.denoiser.Denoiser, "__call__", None)
    for name in ("report.html", "bits_per_dim.svg", "timesteps.png", "table.txt"):
        (copied / name).unlink()
    assert _run(["report", str(copied), "--json"]) == 0
    written = [Path(name).name for name in json.loads(capsys.readouterr().out)["files"]]
    assert written[0] == "report.html"
    assert {"bits_per_dim.svg", "timesteps.png", "table.txt"} <= set(written)
    for name in ("report.html", "table.txt"):
        assert (copied / name).read_bytes() == (demo / name).read_bytes()


def test_report_needs_neither_a_comparison_nor_costs_but_one_of_them(
    copied: Path, demo: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copied / "comparison.json").unlink()
    assert page_document(Saved.read(copied))["curves"] == page_document(Saved.read(demo))["curves"]
    (copied / "heldout.safetensors").unlink()
    assert _run(["report", str(copied)]) == 2
    assert "holds neither comparison.json nor heldout.safetensors" in capsys.readouterr().err
    (copied / "schedules.json").unlink()
    assert _run(["report", str(copied)]) == 2
    assert "holds no schedules.json. Name the folder" in capsys.readouterr().err


def test_files_of_different_runs_are_not_mixed(copied: Path, tmp_path: Path) -> None:
    curve = json.loads((copied / "comparison.json").read_text())["curves"]
    curve["dp"]["1"][0] += 0.01
    rewrite(copied / "comparison.json", curves=curve)
    with pytest.raises(ValueError, match=r"heldout.safetensors gives .* for 1 steps .* different runs"):
        Saved.read(copied)
    other = save_formula(tmp_path / "other", ForwardProcess.linear(30))
    shutil.copy(other / "comparison.json", copied / "comparison.json")
    with pytest.raises(ValueError, match="different grids or budgets"):
        Saved.read(copied)


def test_a_study_brings_its_figures_and_tables(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = study_in(copied)
    document = page_document(Saved.read(copied))
    assert document["warnings"] == ["A note of the study."]
    assert document["study"]["distances"]["floor"]["frechet"] == 0.5
    assert document["study"]["distances"]["points"][-1]["kernelError"] is None
    assert document["study"]["ablation"]["excess"][1][0][0] == pytest.approx(
        float(np.mean(results.ablation.excess(8, 16)))  # type: ignore[union-attr]
    )
    assert [group["title"] for group in document["samples"]] == ["real images", "32 steps", f"all {T} steps"]


# --- who made it --------------------------------------------------------------------------------------------------------


def test_the_command_is_kept_without_secrets(tmp_path: Path) -> None:
    words = [
        "find",
        "org/model",
        "my images",
        "-o",
        "out",
        "-M",
        "token=hf_abc",
        "-M",
        "api_key=1234",
        "-M",
        "preset=cifar",
    ]
    run = Run.of(words, "org/model", "my images", None)
    assert run.command == "dpstride find org/model 'my images' -o out -M token=… -M api_key=… -M preset=cifar".replace(
        "token=… -M api_key=…", "'token=…' -M 'api_key=…'"
    )
    assert "hf_abc" not in run.save(tmp_path).read_text()
    for words in (
        ["-Mtoken=hf_abc"],
        ["--model-option=token=hf_abc"],
        ["-M", "token = hf_abc"],
        ["-M", "my_token=a\nhf_abc"],
    ):
        assert "hf_abc" not in Run.of(["find", *words], "m", "d", None).command
    assert Run.load(tmp_path / "run.json") == run
    assert {"python", "dpstride", "numpy", "torch"} <= set(run.versions)


@pytest.mark.parametrize(
    "content", ["[]", "{}", '{"format": "dpstride-run-1"}', '{"format": "dpstride-run-1", "command": 3}']
)
def test_a_damaged_record_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "run.json").write_text(content)
    with pytest.raises(UnreadableFileError, match=r"run\.json"):
        Run.load(tmp_path / "run.json")


def test_provenance_says_fingerprints_seeds_versions_and_command(demo: Path) -> None:
    document = page_document(Saved.read(demo))
    provenance = dict(document["provenance"])
    assert document["command"] == f"dpstride demo mixture -o {demo} -q"
    assert provenance["Held-out data fingerprint"] == Statistics.load(demo / "heldout.safetensors").data["fingerprint"]
    assert (
        provenance["Choosing data fingerprint"] == Statistics.load(demo / "statistics.safetensors").data["fingerprint"]
    )
    assert provenance["Process fingerprint"] == ForwardProcess.linear(T).fingerprint
    assert provenance["Seeds"] == "0 (choosing), 1 (held-out)"
    assert "dpstride 0" in provenance["Versions"]


def test_statistics_by_formula_are_what_they_say() -> None:
    """The folders of these tests: their mean error is the ideal one's, within noise."""
    process = ForwardProcess.linear(20)
    found = formula_statistics(process, 3, samples=400).mean_squared_error[1:]
    assert found == pytest.approx(0.25 / (1.0 + 0.25 * process.snr[1:]), rel=0.02)
