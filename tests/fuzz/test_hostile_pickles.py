"""Pickles and checkpoints made to run code or to lie about their tensors."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hostile_files import tensor_program

import dpstride
from dpstride.reading.checkpoints import check_checkpoint, read_checkpoint
from dpstride.reading.limits import UnreadableFileError

pytestmark = pytest.mark.attack("files that take memory, time or other files")


class Runs:
    """Leaves a file behind when it is unpickled."""

    def __reduce__(self) -> Any:
        return (open, ("ran.txt", "w"))


# --- no code from data -------------------------------------------------------------------------------------------------


def write_pt(path: Path) -> None:
    torch.save({"images": Runs()}, path)


def write_legacy_pt(path: Path) -> None:
    torch.save({"images": Runs()}, path, _use_new_zipfile_serialization=False)


def write_bare_pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps(Runs()))


def write_module(path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), path)  # a checkpoint in full mode: a module, not its tensors


def write_object_npy(path: Path) -> None:
    np.save(path, np.array([Runs()], dtype=object))


def write_object_npz(path: Path) -> None:
    np.savez(path, images=np.array([Runs()], dtype=object))


def write_pickle_named_npy(path: Path) -> None:
    path.write_bytes(pickle.dumps(Runs()))  # numpy.load would unpickle it if it were allowed to


@pytest.mark.parametrize(
    ("name", "write", "match"),
    [
        (
            "a.pt",
            write_pt,
            "no code in it is run: it names '__builtin__ open'|no code in it is run: it names 'io open'",
        ),
        ("a.pth", write_legacy_pt, "it names '__builtin__ open'|it names 'io open'"),
        ("a.pt", write_bare_pickle, "no code in it is run: pickle protocol 4"),
        ("a.pt", write_module, "it names 'torch.nn.modules.linear Linear'"),
        ("a.npy", write_object_npy, "pickled objects, which are refused"),
        ("a.npz", write_object_npz, "pickled objects, which are refused"),
        ("a.npy", write_pickle_named_npy, "not a readable numpy file"),
        ("a.npz", write_pickle_named_npy, "not a whole zip archive"),
    ],
)
def test_a_pickle_does_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, write: Callable[[Path], None], match: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / name)
    with pytest.raises(UnreadableFileError, match=match):
        dpstride.read_data(tmp_path / name)
    assert not (tmp_path / "ran.txt").exists()


def test_the_pickle_would_have_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle of the test above: unpickled, such a file leaves its mark."""
    monkeypatch.chdir(tmp_path)
    write_pt(tmp_path / "a.pt")
    torch.load(tmp_path / "a.pt", weights_only=False)["images"].close()
    assert (tmp_path / "ran.txt").exists()


def checkpoint_with(path: Path, program: bytes, records: dict[str, bytes] | None = None, **options: Any) -> None:
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("a/data.pkl", program)
        archive.writestr("a/version", "3\n")
        for key, content in (records or {}).items():
            archive.writestr(f"a/data/{key}", content)


def test_the_program_of_these_tests_is_a_tensor(tmp_path: Path) -> None:
    values = np.arange(12, dtype=np.float32)
    checkpoint_with(
        tmp_path / "a.pt", tensor_program("torch FloatStorage", 12, 2, (2, 3), (5, 1)), {"0": values.tobytes()}
    )
    expected = torch.tensor([[2.0, 3.0, 4.0], [7.0, 8.0, 9.0]])
    assert torch.equal(read_checkpoint(tmp_path / "a.pt")["images"], expected)
    assert torch.equal(torch.load(tmp_path / "a.pt", weights_only=True)["images"], expected)


@pytest.mark.parametrize(
    ("storage", "count", "offset", "size", "stride"),
    [
        ("torch FloatStorage", 2**40, 0, (2, 3), (3, 1)),  # more than the record holds
        ("torch FloatStorage", 2**62, 0, (2, 3), (3, 1)),  # times 4 overflows
        ("torch FloatStorage", -12, 0, (2, 3), (3, 1)),
        ("torch FloatStorage", 12, 0, (2**40,), (0,)),  # one number repeated: no memory until it is used
        ("torch FloatStorage", 12, 0, (2**40,), (1,)),
        ("torch FloatStorage", 12, 11, (2, 1), (1, 1)),  # one past the end
        ("torch FloatStorage", 12, 2**47, (1,), (1,)),
        ("torch FloatStorage", 12, -4, (2,), (1,)),
        ("torch FloatStorage", 12, 0, (2, 3), (2**47, 1)),
        ("torch FloatStorage", 12, 0, (-1, 3), (3, 1)),
        ("torch FloatStorage", 12, 0, (2, 3), (-3, 1)),
        ("torch FloatStorage", 12, 0, (2, 3), (3,)),
        ("torch FloatStorage", 12, 0, (2**40, 2**40, 0), (1, 1, 1)),
        ("torch FloatStorage", 12, 0, (1,) * 17, (1,) * 17),
        ("torch DoubleStorage", 12, 0, (2, 3), (3, 1)),  # half the bytes are missing
        ("torch QInt8Storage", 48, 0, (2, 3), (3, 1)),
        ("os system", 12, 0, (2, 3), (3, 1)),
    ],
)
def test_a_tensor_that_does_not_fit_its_storage_is_refused(
    tmp_path: Path, storage: str, count: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> None:
    checkpoint_with(tmp_path / "a.pt", tensor_program(storage, count, offset, size, stride), {"0": bytes(48)})
    for read in (read_checkpoint, check_checkpoint):
        with pytest.raises(UnreadableFileError, match=r"a\.pt: not a plain checkpoint, no code in it is run: "):
            read(tmp_path / "a.pt")


@pytest.mark.parametrize(
    ("program", "match"),
    [
        (b"\x80\x02]q\x00(h\x00e.", "one list, dict or long tuple in two places"),  # a list that holds itself
        (
            b"\x80\x02]q\x00]q\x01(h\x00h\x00e.",
            "one list, dict or long tuple in two places",
        ),  # doubling: 2ⁿ lists in n instructions
        (b"\x80\x02" + b"]" * 100 + b"a" * 99 + b".", "nested deeper than 64"),
        (b"\x80\x02cos\nsystem\nX\x02\0\0\0id\x85R.", "it names 'os system'"),
        (b"\x80\x02ccollections\nOrderedDict\n(]tR.", "collections OrderedDict with unusual arguments"),
        (b"\x80\x02]Nb.", "sets attributes of an object"),
        (b"\x80\x02]NNs.", "sets items of something that is not a dict"),
        (b"\x80\x02}Na.", "appends to something that is not a list"),
        (b"\x80\x02}]Ns.", "a key is a list"),
        (b"\x80\x02ctorch\nFloatStorage\n.", "a type or a storage where a value should be"),
        (b"\x80\x05N.", "pickle protocol 5"),
        (b"\x80\x02N0N.", "the instruction POP"),
        (b"\x80\x02(i__main__\nX\n.", "the instruction INST"),
        (b"\x80\x02N\x82\x01.", "the instruction EXT1"),
        (b"\x80\x02(NN.", "its pickle is not complete"),
        (b"\x80\x02h\x07.", "its pickle is damaged"),
        (b"\x80\x02R.", "its pickle is damaged"),
        (b"\x80\x02N", "its pickle is damaged"),  # no end
    ],
)
def test_a_pickle_that_is_no_plain_checkpoint_says_why(tmp_path: Path, program: bytes, match: str) -> None:
    checkpoint_with(tmp_path / "a.pt", program)
    with pytest.raises(UnreadableFileError, match=match):
        read_checkpoint(tmp_path / "a.pt")


def test_plain_checkpoints_are_read_as_torch_reads_them(tmp_path: Path) -> None:
    """torch.load is the oracle, on everything that a state dictionary, an optimiser and a log are made of."""
    network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimiser = torch.optim.Adam(network.parameters())
    network(torch.randn(4, 3)).square().sum().backward()
    optimiser.step()
    base = torch.arange(24.0).reshape(4, 6)
    kinds = (
        torch.float64,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int8,
        torch.uint8,
        torch.bool,
        torch.uint16,
    )
    saved = {
        "network": network.state_dict(),
        "optimiser": optimiser.state_dict(),
        "views": [base.t(), base[1:3, ::2], base[0], base.reshape(2, 2, 6)],
        "kinds": [torch.ones(3).to(kind) for kind in kinds],
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(3.5),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "log": [
            {
                "step": 1,
                "loss": 0.5,
                "none": None,
                "flag": True,
                "pair": (1, "a"),
                "long": 10**30,
                "size": torch.Size([2]),
            }
        ],
    }
    torch.save(saved, tmp_path / "a.pt")
    ours, theirs = read_checkpoint(tmp_path / "a.pt"), torch.load(tmp_path / "a.pt", weights_only=True)
    same(ours, theirs)
    old = saved | {"kinds": saved["kinds"][:-1]}  # as torch wrote it before 1.6, when there was no uint16
    torch.save(old, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    same(read_checkpoint(tmp_path / "old.pt"), torch.load(tmp_path / "old.pt", weights_only=True))
    for cut in (1, 8, 100, 2000):
        (tmp_path / "cut.pt").write_bytes((tmp_path / "old.pt").read_bytes()[:-cut])
        with pytest.raises(UnreadableFileError, match=r"cut\.pt: not a plain checkpoint"):
            read_checkpoint(tmp_path / "cut.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "a.pt").read_bytes()[:-1])
    with pytest.raises(UnreadableFileError, match=r"cut\.pt: not a whole zip archive"):
        read_checkpoint(tmp_path / "cut.pt")


def same(ours: Any, theirs: Any) -> None:
    if isinstance(theirs, torch.Tensor):
        assert ours.dtype == theirs.dtype
        assert torch.equal(ours, theirs.detach())
    elif isinstance(theirs, dict):
        assert list(ours) == list(theirs)
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, (list, tuple)):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            same(one, other)
    else:
        assert ours == theirs


def test_a_flipped_bit_of_a_tensor_is_found(tmp_path: Path) -> None:
    torch.save({"images": torch.zeros(1000)}, tmp_path / "a.pt")
    content = bytearray((tmp_path / "a.pt").read_bytes())
    content[content.find(bytes(1000)) + 500] ^= 1
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(UnreadableFileError, match="Bad CRC-32"):
        read_checkpoint(tmp_path / "a.pt")


def test_an_archive_that_two_programs_read_differently_is_refused(tmp_path: Path) -> None:
    torch.save(torch.zeros(3), tmp_path / "a.pt")
    good = (tmp_path / "a.pt").read_bytes()
    (tmp_path / "b.pt").write_bytes(good[:-2] + b"\x04\0more")  # a comment after the directory
    # another archive before it: zipfile moves all offsets, miniz does not
    (tmp_path / "c.pt").write_bytes(good + good)
    for name in ("b.pt", "c.pt"):
        with pytest.raises(UnreadableFileError, match="bytes before or after the archive"):
            read_checkpoint(tmp_path / name)
