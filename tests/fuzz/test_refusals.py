"""What damaged files taught the readers, one case each: before, these were tracebacks, or passed in silence."""

from __future__ import annotations

import gzip
import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import dpstride
from dpstride.evaluate.comparison import Comparison
from dpstride.reading.limits import UnreadableFileError
from dpstride.reading.types import check_types
from dpstride.statistics.data import Samples
from dpstride.zoo.idx import read_fashion_mnist

# --- data --------------------------------------------------------------------------------------------------------------


def test_tensors_that_torch_cannot_compare_are_refused(tmp_path: Path) -> None:
    for name, tensor in (
        ("float8", torch.zeros(2, 3).to(torch.float8_e4m3fn)),
        ("complex", torch.zeros(2, 3, dtype=torch.complex64)),
    ):
        save_file({"images": tensor}, tmp_path / f"{name}.safetensors")
        with pytest.raises(ValueError, match="numeric arrays, not Tensor of dtype"):
            Samples.read(dpstride.read_data(tmp_path / f"{name}.safetensors"))


def test_a_dict_with_keys_of_two_kinds_is_refused(tmp_path: Path) -> None:
    torch.save({"x": torch.zeros(2, 2), 3: torch.zeros(2)}, tmp_path / "a.pt")
    with pytest.raises(UnreadableFileError, match=r"a\.pt: holds a dict, not a tensor or a dict of named tensors"):
        dpstride.read_data(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.zeros((0, 1, 2, 2)), "holds no sample"),
        (np.zeros((2, 0)), "holds no sample"),
        (np.zeros(3, dtype=[("a", "<f8")]), "not numbers or text"),
        (np.zeros(3, dtype="M8[s]"), "not numbers or text"),
        (np.zeros(3, dtype="V0"), "not numbers or text"),
    ],
)
def test_arrays_that_are_no_data_are_refused(tmp_path: Path, array: Any, match: str) -> None:
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", images=array)
    for name in ("a.npy", "a.npz"):
        with pytest.raises(UnreadableFileError, match=match):
            dpstride.read_data(tmp_path / name)


def test_every_order_and_version_of_npy_is_read_as_numpy_reads_it(tmp_path: Path) -> None:
    array = np.arange(24, dtype=">f4").reshape(2, 3, 4)
    np.save(tmp_path / "a.npy", np.asfortranarray(array))
    np.testing.assert_array_equal(dpstride.read_data(tmp_path / "a.npy"), array)
    with (tmp_path / "b.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version=(2, 0))
    np.testing.assert_array_equal(dpstride.read_data(tmp_path / "b.npy"), array)
    np.savez_compressed(tmp_path / "c.npz", np.asfortranarray(array))
    np.testing.assert_array_equal(dpstride.read_data(tmp_path / "c.npz"), array)


IDX = {
    "cut": (lambda good: good[:-20], "not a whole gzip file"),
    "no gzip": (lambda good: b"\0" * 100, "not a whole gzip file"),
    "floats": (lambda good: gzip.compress(struct.pack(">4B3I", 0, 0, 13, 3, 1, 1, 1) + bytes(4)), "not an IDX file"),
    "two axes": (lambda good: gzip.compress(struct.pack(">4B2I", 0, 0, 8, 2, 2, 2) + bytes(4)), "with 3 axes"),
    "too short": (
        lambda good: gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 9, 2, 2) + bytes(4)),
        "not as many bytes",
    ),
    "empty": (lambda good: gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 0, 2, 2)), "not as many bytes"),
    "other labels": (
        lambda good: gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 1, 2, 2) + bytes(4)),
        "1 images, but 2 labels",
    ),
}


@pytest.mark.parametrize("case", IDX)
def test_idx_files_that_are_not_whole(tmp_path: Path, case: str) -> None:
    damage, match = IDX[case]
    good = gzip.compress(struct.pack(">4B3I", 0, 0, 8, 3, 2, 2, 2) + bytes(range(8)))
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(struct.pack(">4BI", 0, 0, 8, 1, 2) + b"\3\4"))
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(good)
    images, labels = read_fashion_mnist("test", tmp_path)
    assert images.tolist() == [[[[0, 1], [2, 3]]], [[[4, 5], [6, 7]]]]
    assert labels.tolist() == [3, 4]
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(damage(good))
    with pytest.raises(UnreadableFileError, match=match) as refusal:
        read_fashion_mnist("test", tmp_path)
    assert str(tmp_path) in str(refusal.value)


# --- comparisons -------------------------------------------------------------------------------------------------------


def comparison() -> Comparison:
    curve = {1: (4.0, 0.1), 3: (2.0, 0.1)}
    return Comparison(
        T=3,
        curves={"even": dict(curve), "quadratic": dict(curve), "dp": {1: (math.inf, math.nan), 3: (1.5, 0.1)}},
        chosen={1: (math.nan, math.nan), 3: (1.4, 0.1)},
        model={"name": "m"},
        options={"variance": "posterior"},
        samples={"chosen": 4, "heldout": 4},
        seeds={"chosen": 0, "heldout": 1},
        warnings=("one",),
    )


def test_a_budget_that_costs_infinitely_much_survives_saving_and_drawing(tmp_path: Path) -> None:
    """JSON has no infinity; it used to come back as NaN, of which no budget is the best."""
    from dpstride.report.figures import save_figures

    comparison().save(tmp_path / "a.json")
    again = Comparison.load(tmp_path / "a.json")
    assert again.curves["dp"][1][0] == math.inf
    assert again.best_budget == again.enough() == 3
    schedules = dpstride.ScheduleSet.of([dpstride.even_stride(dpstride.ForwardProcess.linear(3), K) for K in (1, 3)])
    assert len(save_figures(again, schedules, tmp_path)) == 4


@pytest.mark.parametrize(
    ("edit", "match"),
    [
        (lambda d: d.update(format="x"), "format 'x' is not 'dpstride-comparison-1'"),
        (lambda d: d.update(T="3"), "T is '3', not int"),
        (lambda d: d.update(T=2), "budgets must lie in 1 … 2"),
        (lambda d: d["curves"].pop("dp"), "the strides must be even, quadratic, dp"),
        (lambda d: d["curves"]["even"].pop("1"), "the same budgets"),
        (lambda d: d["curves"].update(dp={}, even={}, quadratic={}), "at least one"),
        (lambda d: d["curves"]["dp"].update({"1": ["a", 0]}), "not two numbers"),
        (lambda d: d["curves"]["dp"].update({"1": [0]}), "not enough values"),
        (lambda d: d["curves"]["dp"].update({"one": [0, 0]}), "invalid literal"),
        (lambda d: d.update(model=[]), "model is"),
        (lambda d: d.update(model={}), "the model must have a name"),
        (lambda d: d.update(warnings=[1]), "warnings is"),
        (lambda d: d.update(samples={"chosen": "4"}), "samples is"),
        (lambda d: d.update(more=1), "unexpected keyword argument 'more'"),
    ],
)
def test_a_comparison_is_checked(tmp_path: Path, edit: Callable[[dict[str, Any]], Any], match: str) -> None:
    comparison().save(tmp_path / "a.json")
    document = json.loads((tmp_path / "a.json").read_text())
    edit(document)
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(UnreadableFileError, match=rf"a\.json: .*{match}"):
        Comparison.load(tmp_path / "a.json")


def test_types_are_checked_as_they_are_declared() -> None:
    check_types(comparison())
    from dataclasses import replace

    for name, wrong in {
        "T": True,
        "curves": {"dp": {1: [4.0, 0.1]}},
        "chosen": {"1": (1.0, 1.0)},
        "warnings": ["one"],
        "seeds": {"chosen": 1.0},
    }.items():
        with pytest.raises(ValueError, match=f"^{name} is "):
            check_types(replace(comparison(), **{name: wrong}))


# --- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_checkpoint_of_training_is_checked_part_by_part(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    import model_files

    from dpstride.training.checkpoint import FILE, FORMAT

    model_files.make_training(tmp_path)
    good = torch.load(tmp_path / FILE, weights_only=True)
    assert good["format"] == FORMAT
    assert model_files.run_training(tmp_path).step == 2

    def with_part(name: str, value: Any) -> dict[str, Any]:
        return {**good, name: value}

    states = {key: dict(value) for key, value in good["optimiser"]["state"].items()}
    states[0]["exp_avg"] = torch.zeros(1)
    for wrong, match in (
        ([1], "format 'list' is not"),
        ({}, "format None is not"),
        (with_part("step", -1), "its step or its losses"),
        (with_part("step", "2"), "it has no valid 'step'"),
        (with_part("recent", ["a"]), "its step or its losses"),
        (with_part("log", [1]), "its log has an entry"),
        (with_part("log", [{"step": 1, "train_loss": "low", "held_out_loss": None}]), "its log has an entry"),
        (with_part("network", {}), "does not fit this run"),
        (with_part("rng", torch.zeros(3)), "does not fit this run"),
        (with_part("plans", []), "does not fit this run"),
        (with_part("sampler", {"losses": torch.zeros(1), "counts": torch.zeros(1)}), "does not fit this run"),
        (with_part("optimiser", {"state": states}), "does not fit this run .the optimiser's exp_avg"),
        (with_part("optimiser", {"state": {0: {"step": 1}}}), "does not fit this run"),
    ):
        torch.save(wrong, tmp_path / FILE)
        with pytest.raises(UnreadableFileError, match=match) as refusal:
            model_files.run_training(tmp_path)
        assert str(tmp_path / FILE) in str(refusal.value)
    # Options of the optimiser are this run's own, whatever the file says.
    groups = [{**good["optimiser"]["param_groups"][0], "betas": ("a", "b")}]
    torch.save(with_part("optimiser", {**good["optimiser"], "param_groups": groups}), tmp_path / FILE)
    model_files.run_training(tmp_path).advance()


def test_an_openai_checkpoint_of_odd_tensors_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("diffusers")
    import model_files

    from dpstride.integrations.loaded import UnsupportedModelError

    model_files.make_openai(tmp_path)
    good = torch.load(tmp_path / "ema.pt", weights_only=True)
    model_files.use_network(model_files.read_openai(tmp_path))
    for name, tensor, match in (
        ("input_blocks.0.0.weight", torch.zeros(()), r"its 'input_blocks.0.0.weight' has shape \(\)"),
        ("out.2.weight", torch.zeros(0, 1, 1, 1), r"its 'out.2.weight' has shape \(0, 1, 1, 1\)"),
        ("middle_block.1.qkv.weight", torch.zeros(()), r"qkv.weight has shape \(\)"),
        ("middle_block.1.qkv.weight", torch.zeros(97, 32, 1), "not three matrices of 2 heads"),
        ("middle_block.1.qkv.bias", torch.zeros(9), "not three matrices of 2 heads"),
        ("time_embed.0.weight", torch.zeros(2, 2), "does not fit a network of these flags"),
        (7, torch.zeros(2), "names of its tensors are not text"),
        ("more", 3, "not the state dictionary"),
    ):
        torch.save({**good, name: tensor}, tmp_path / "ema.pt")
        with pytest.raises(UnsupportedModelError, match=match) as refusal:
            model_files.read_openai(tmp_path)
        assert str(tmp_path / "ema.pt") in str(refusal.value)


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"num_train_timesteps": 10**12}, "num_train_timesteps must be a whole number"),
        ({"num_train_timesteps": "20"}, "num_train_timesteps must be a whole number"),
        ({"num_train_timesteps": 0}, "num_train_timesteps must be a whole number"),
        ({"beta_start": None}, "beta_start must be a finite number, not None"),
        ({"beta_end": [1]}, r"beta_end must be a finite number, not \[1\]"),
        ({"beta_start": -0.1}, "must lie between 0 and 1"),
        ({"beta_schedule": ["linear"]}, r"beta_schedule \['linear'\] is not known"),
        ({"prediction_type": {}}, r"prediction_type must be .* not {}"),
        ({"variance_type": 3}, "variance_type 3 is not known"),
        ({"trained_betas": "abc"}, "trained_betas must be a list of numbers"),
        ({"trained_betas": [[0.1], [0.1, 0.2]]}, "trained_betas must be a list of numbers"),
        ({"clip_sample": True, "clip_sample_range": -1.0}, "clip_sample_range must be above 0"),
        ({"clip_sample": True, "clip_sample_range": "1"}, "clip_sample_range must be a finite number"),
    ],
)
def test_a_scheduler_config_of_other_types_is_refused(entries: dict[str, Any], match: str) -> None:
    from dpstride.integrations.loaded import UnsupportedModelError
    from dpstride.integrations.scheduler_config import read_scheduler

    good = {"num_train_timesteps": 20, "beta_schedule": "linear"}
    assert read_scheduler(good).process.T == 20
    with pytest.raises(UnsupportedModelError, match=match):
        read_scheduler({**good, **entries})


def test_a_message_does_not_repeat_a_name_of_a_hundred_thousand_letters(tmp_path: Path) -> None:
    save_file({"images": torch.zeros(2, 2)}, tmp_path / "good.safetensors")
    content = (tmp_path / "good.safetensors").read_bytes()
    header = json.loads(content[8:-16])
    header["x" * 100_000] = {"dtype": "F32", "shape": [9, 9], "data_offsets": [16, 17]}
    text = json.dumps(header).encode()
    (tmp_path / "a.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content[-16:])
    with pytest.raises(UnreadableFileError, match=r"a\.safetensors: not a whole safetensors file") as refusal:
        dpstride.read_data(tmp_path / "a.safetensors")
    assert len(str(refusal.value)) < 1000
