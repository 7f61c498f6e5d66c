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
