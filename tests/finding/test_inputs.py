"""MODEL and DATA as typed: names where they do not belong, and functions that return data sets of torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dpstride
from dpstride.finding.inputs import load_model, read_data, read_samples
from dpstride.integrations.loaded import LoadedModel
from dpstride.zoo import data_names, load_data, load_labels, names
from small_network import IMAGES, denoiser_of

DATASETS = """
import torch
from torch.utils.data import DataLoader, Dataset
from small_network import IMAGES

class One(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, i):
        return IMAGES[i]

def dataset():
    return One()

def loader():
    return DataLoader(One(), batch_size=4)
"""


def test_swapped_names_are_told_apart() -> None:
    with pytest.raises(ValueError, match=r"MODEL '\S+' is an embedded data set\. Give MODEL first, then DATA\."):
        load_model(data_names()[0])
    with pytest.raises(ValueError, match=r"DATA '\S+' is an embedded model\. Give MODEL first, then DATA\."):
        read_data(names()[0])


@pytest.mark.parametrize("name", data_names())
def test_embedded_data_are_read_by_name_in_python_too(name: str) -> None:
    """The message about DATA that is not there offers a zoo name, and the table of own-model.md lists them."""
    images, labels = dpstride.read_data(name, labels=True)
    assert torch.equal(dpstride.read_data(name), load_data(name))
    assert torch.equal(images, load_data(name))
    assert torch.equal(labels, load_labels(name))


def test_the_folder_of_a_training_is_answered_with_its_model(tmp_path: Path) -> None:
    (tmp_path / "mine" / "model" / "unet").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"is the folder of a training run\. Give its model, \S*mine/model\."):
        load_model(tmp_path / "mine")


@pytest.mark.parametrize("typed", ["my_model", "my_model.py", "./my_model.py", "my_model:"])
def test_a_module_is_answered_with_its_function(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_model.py").write_text("def train():\n    pass\n\n\ndef denoiser():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"Did you mean my_model:denoiser\?"):
        load_model(typed)


def test_a_module_in_a_package_is_not_asked_of_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`dpstride find my_package.my_model images/` tried the hub six times, and spoke of model_index.json."""
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "my_model.py").write_text("def denoiser():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dpstride.integrations.loading.load_any", lambda text: pytest.fail(f"{text} was asked for"))
    with pytest.raises(ValueError, match=r"Did you mean my_package\.my_model:denoiser\?"):
        load_model("my_package.my_model")


def test_a_module_without_functions_and_one_in_a_package_are_answered_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare.py").write_text("x = 1\n")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "nets.py").write_text("def of(width):\n    pass\n\n\ndef build():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="name its function that returns the model, bare:function"):
        load_model("bare")
    with pytest.raises(ValueError, match=r"Did you mean pkg\.nets:build\?"):
        load_model("pkg/nets.py")


@pytest.mark.parametrize("name", ["dataset", "loader"])
def test_a_function_may_return_a_dataset_of_torch(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch_datasets.py").write_text(DATASETS)
    monkeypatch.syspath_prepend(tmp_path)
    found = read_samples(f"torch_datasets:{name}", LoadedModel(denoiser_of()), 7, None)
    assert torch.equal(found.values, IMAGES[:7])
    assert found.data_range.levels == 256
