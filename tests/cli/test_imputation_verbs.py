"""The command line on a model that imputes a table: a file with x, mask and observed, paths, scores and imputed rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpstride import Comparison, ScheduleSet, Statistics, find
from dpstride.cli import _run
from imputed import Array

MODEL = '''
import numpy as np
import torch
from dpstride import Denoiser, ForwardProcess

process = ForwardProcess.linear(T=60)


def network(x, time, mask, observed):
    """Exact for two columns N(0, 1) with covariance 0.8, of which one or none is given."""
    f, g = (torch.from_numpy(each[time.numpy() + 1])[:, None] for each in (process.f, process.g))
    noise = torch.where(mask == 1, (g / f) ** 2, 0.0)
    covariance = torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=torch.float64)
    y = torch.where(mask == 1, x / f, observed)
    return (covariance @ torch.linalg.solve(covariance + torch.diag_embed(noise), y[..., None]))[..., 0]


def model():
    return Denoiser(network, process, predicts="x0", clip=None, shape=(2,), mask="mask", observed="observed")
'''


def rows(count: int, seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    x = rng.multivariate_normal(np.zeros(2), [[1.0, 0.8], [0.8, 1.0]], size=count)
    mask = np.array([[1, 0], [0, 1], [1, 1]])[rng.integers(0, 3, size=count)]
    return {"x": x, "mask": mask, "observed": x * (1 - mask)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "imputing.py").write_text(MODEL, encoding="utf-8")
    np.savez(tmp_path / "table.npz", **rows(80, 0))
    np.savez(tmp_path / "holes.npz", **rows(5, 1))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


FIND = ["find", "imputing:model", "table.npz", "--data-range", "continuous", "--budgets", "4,8", "-o", "out"]


def test_a_table_is_imputed_from_find_to_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(FIND) == 0
    heldout, said = Statistics.load("out/heldout.safetensors"), capsys.readouterr().out
    assert heldout.predicted is not None
    assert set(heldout.predicted) == {1.0, 2.0}
    assert "a Gaussian fitted" not in said  # it would have to be given what the model is given
    assert (folder / "out" / "report.html").stat().st_size > 1000
    schedules, comparison = ScheduleSet.load("out/schedules.json"), Comparison.load("out/comparison.json")
    assert comparison.curves["dp"][8][0] < comparison.curves["even"][8][0]
    # Evaluated directly on the same samples, without what is kept of them.
    evaluate = ["evaluate", "out/schedules.json", "--model", "imputing:model", "--data", "table.npz", "-k", "8"]
    assert _run([*evaluate, "--data-range", "continuous", "--json"]) == 0
    scores: dict[str, Any] = json.loads(capsys.readouterr().out)["bits_per_dim"]["dp"]["8"]
    assert scores["bpd"] == pytest.approx(comparison.curves["dp"][8][0], abs=5.0 * scores["standard_error"])

    sample = ["sample", "imputing:model", "out/schedules.json", "-k", "8", "-n", "5", "-o", "drawn.npy"]
    assert _run([*sample, "--conditioning", "holes.npz"]) == 0
    drawn, holes = np.load("drawn.npy"), rows(5, 1)
    given = holes["mask"] == 0
    assert given.any()
    np.testing.assert_array_equal(drawn[given], holes["x"].astype(np.float32)[given])
    assert not np.isin(drawn[~given], holes["observed"].astype(np.float32)).any()
    assert len(schedules) == 60
    assert _run([*sample[:-1], "other.npy"]) == 2
    assert "name a file that has them with --conditioning" in capsys.readouterr().err


def test_another_mask_is_another_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(FIND) == 0
    assert _run(FIND) == 0  # goes on
    table = rows(80, 0)
    table["mask"][:, 0], table["observed"][:, 0] = 1, 0.0
    np.savez(folder / "table.npz", **table)
    capsys.readouterr()
    assert _run(FIND) == 2
    assert "--overwrite" in capsys.readouterr().err
    table["mask"], table["observed"] = 1 - table["mask"], np.zeros((80, 2))
    table["mask"][:, 0] = 1
    np.savez(folder / "table.npz", **table)
    assert _run([*FIND, "--overwrite"]) == 2
    assert "the other way round" in capsys.readouterr().err


def test_paths_for_samples_are_found_too_and_others_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = find("imputing:model", "table.npz", "samples", data_range="continuous", objective="samples", budgets=(4,))
    assert found.schedules[4].options["sampler"] == "ddim"
    for words in (
        [*FIND, "--objective", "trajectory"],
        ["tune", "imputing:model", "table.npz", "--data-range", "continuous", "-o", "race"],
        ["study", "imputing:model", "table.npz", "--data-range", "continuous", "-o", "study"],
    ):
        assert _run(words) == 2
        assert "is not for models that are given some elements" in capsys.readouterr().err
