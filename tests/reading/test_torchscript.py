"""TorchScript archives as data: names and numbers of the module's state dictionary, and nothing that runs."""

from __future__ import annotations

import warnings
import zipfile
from pathlib import Path

import pytest
import torch
from torch import nn

from dpstride.reading.limits import UnreadableFileError
from dpstride.reading.torchscript import is_torchscript, read_torchscript


class Module(nn.Module):
    """Parameters, buffers, views, and attributes of every plain kind."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Linear(3, 2))
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).T)
        self.count, self.share, self.name, self.sizes, self.shares = 3, 0.5, "x", [1, 2], [0.5]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * self.share


@pytest.fixture
def module() -> Module:
    return Module().eval()


@pytest.fixture
def archive(module: Module, tmp_path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, whose archives are still about
        torch.jit.script(module).save(tmp_path / "module.pt")
    return tmp_path / "module.pt"


def test_a_state_dictionary_comes_back(module: Module, archive: Path) -> None:
    assert is_torchscript(archive)
    found, expected = read_torchscript(archive), module.state_dict()
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(found[name], value)
        assert found[name].dtype == value.dtype


def test_checkpoints_of_torch_save_are_not_taken_for_archives(module: Module, tmp_path: Path) -> None:
    for old in (True, False):
        torch.save(module.state_dict(), tmp_path / "a.pt", _use_new_zipfile_serialization=not old)
        assert not is_torchscript(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (b"\x80\x02cos\nmkdir\n(X\x03\x00\x00\x00rantR.", "it names 'os mkdir'"),
        (b"\x80\x02c__torch__.m\nM\n(X\x03\x00\x00\x00rantR.", "calls __torch__.m M with unusual arguments"),
        (b"\x80\x02ccollections\nOrderedDict\n)\x81}b.", "makes an object that is not a module"),
        (b"\x80\x02c__torch__.m\nM\n)\x81]b.", "sets attributes in an unusual way"),
        (b"\x80\x02ctorch.jit._pickle\nbuild_intlist\n}\x85R.", "builds a list of something that is not one"),
        (
            b"\x80\x02c__torch__.m\nM\n)\x81}(X\x01\x00\x00\x00ac__torch__.m\nM\nub.",
            "holds a type or a storage where a value should be",
        ),
    ],
)
def test_a_pickle_that_does_anything_else_is_refused(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: bytes, match: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with zipfile.ZipFile(archive) as good, zipfile.ZipFile(tmp_path / "bad.pt", "w") as bad:
        for member in good.namelist():
            bad.writestr(member, program if member.endswith("/data.pkl") else good.read(member))
    with pytest.raises(UnreadableFileError, match=match):
        read_torchscript(tmp_path / "bad.pt")
    assert not (tmp_path / "ran").exists()
