"""MODEL and DATA that were typed in a place where they do not belong."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpstride.finding.inputs import load_model, named_data
from dpstride.zoo import data_names, names


def test_swapped_names_are_told_apart() -> None:
    with pytest.raises(ValueError, match=r"MODEL '\S+' is an embedded data set\. MODEL comes first, then DATA\."):
        load_model(data_names()[0])
    with pytest.raises(ValueError, match=r"DATA '\S+' is an embedded model\. MODEL comes first, then DATA\."):
        named_data(names()[0])


def test_the_folder_of_a_training_is_answered_with_its_model(tmp_path: Path) -> None:
    (tmp_path / "mine" / "model" / "unet").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"is the folder of a training; its model is \S*mine/model\."):
        load_model(tmp_path / "mine")


@pytest.mark.parametrize("typed", ["my_model", "my_model.py", "./my_model.py", "my_model:"])
def test_a_module_is_answered_with_its_function(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_model.py").write_text("def train():\n    pass\n\n\ndef denoiser():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"Did you mean my_model:denoiser\?"):
        load_model(typed)


def test_a_module_without_functions_and_one_in_a_package_are_answered_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare.py").write_text("x = 1\n")
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "nets.py").write_text("def build():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="name its function that returns the model, bare:function"):
        load_model("bare")
    with pytest.raises(ValueError, match=r"Did you mean pkg\.nets:build\?"):
        load_model("pkg/nets.py")
