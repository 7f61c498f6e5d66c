"""Files made to harm: each is refused, what it would do does not happen, and memory stays where it was."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import resource
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import dpstride
from dpstride.reading.checkpoints import check_checkpoint, read_checkpoint
from dpstride.reading.documents import read_json
from dpstride.reading.hints import hint
from dpstride.reading.limits import UnreadableFileError
from dpstride.reading.text import one_line, printable, printable_lines
from dpstride.zoo.idx import read_fashion_mnist

pytestmark = pytest.mark.attack("files that take memory, time or other files")

GIB = 2**30


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


def tensor_program(storage: str, count: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """The pickle of a dict {"images": tensor}, as torch.save writes it."""

    def whole(value: int) -> bytes:
        return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    pid = (
        b"("
        + text("storage")
        + b"c"
        + storage.replace(" ", "\n").encode()
        + b"\n"
        + text("0")
        + text("cpu")
        + whole(count)
        + b"t"
    )
    shape = b"(" + b"".join(map(whole, size)) + b"t" + b"(" + b"".join(map(whole, stride)) + b"t"
    rebuild = (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + pid
        + b"Q"
        + whole(offset)
        + shape
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )
    return b"\x80\x02}" + text("images") + rebuild + b"s."


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


# --- bombs -------------------------------------------------------------------------------------------------------------


ZEROS = bytes(2**24)
TIMES = 5 * GIB // len(ZEROS)


def write_zip_bomb(path: Path, name: str, head: bytes, before: dict[str, bytes] | None = None) -> None:
    """A zip member of ``head`` and 5 GiB of zeros, deflated a thousandfold: one deflated block, written 320 times."""
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    start = compressor.compress(head) + compressor.flush(zlib.Z_FULL_FLUSH)
    block = compressor.compress(ZEROS) + compressor.flush(zlib.Z_FULL_FLUSH)
    stream = start + TIMES * block + compressor.flush()
    size, buffer = len(head) + TIMES * len(ZEROS), io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for other, content in (before or {}).items():
            archive.writestr(other, content)
    small = buffer.getvalue()
    directory = small.find(b"PK\x01\x02") if before else 0
    entries = small[directory : small.rfind(b"PK\x05\x06")]
    encoded = name.encode()
    extra = struct.pack("<HHQQ", 1, 16, size, len(stream))
    common = (45, 0, 8, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(encoded), len(extra))
    local = struct.pack("<4s5H3I2H", b"PK\x03\x04", *common) + encoded + extra
    central = struct.pack("<4s6H3I5H2I", b"PK\x01\x02", 45, *common, 0, 0, 0, 0, directory) + encoded + extra
    place, count = directory + len(local) + len(stream), len(before or {}) + 1
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, count, count, len(entries + central), place, 0)
    path.write_bytes(small[:directory] + local + stream + entries + central + end)
    assert zipfile.ZipFile(path).getinfo(name).file_size == size > 5 * GIB - 1
    assert path.stat().st_size < GIB // 64


def npy_header(shape: tuple[int, ...], dtype: str = "|u1") -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": dtype, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


def write_npz_bomb(path: Path) -> None:
    write_zip_bomb(path, "images.npy", npy_header((5 * GIB // 784, 1, 28, 28)))


def write_pt_bomb(path: Path) -> None:
    program = tensor_program("torch ByteStorage", 5 * GIB, 0, (5 * GIB,), (1,))
    write_zip_bomb(path, "a/data/0", b"", {"a/data.pkl": program})


def write_pickle_bomb(path: Path) -> None:
    write_zip_bomb(path, "a/data.pkl", b"\x80\x02")


def write_gz_bomb(path: Path) -> None:
    path.mkdir()
    header = struct.pack(">4B3I", 0, 0, 8, 3, 5 * GIB // 784, 28, 28)
    (path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header) + TIMES * gzip.compress(ZEROS))


def write_gz_bomb_behind_a_small_header(path: Path) -> None:
    """The header says 784 bytes; 5 GiB follow."""
    path.mkdir()
    header = struct.pack(">4B3I", 0, 0, 8, 3, 1, 28, 28)
    (path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(header) + TIMES * gzip.compress(ZEROS))


def write_png_bomb(path: Path) -> None:
    """20,000 × 20,000 grey pixels, 400 MB, in a file of 400 kB."""
    path.mkdir()

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = compressor.compress(bytes(20_001 * 100)) + compressor.flush(zlib.Z_FULL_FLUSH)
    rows = b"\x78\x9c" + 200 * block + compressor.flush() + bytes(4)
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 20_000, 20_000, 8, 0, 0, 0, 0))
    (path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b""))


def write_many_small_png_bombs(path: Path) -> None:
    """Each is small enough; together they are 3 GiB."""
    path.mkdir()
    Image.new("L", (8192, 8192)).save(path / "0.png")
    for i in range(1, 48):
        os.link(path / "0.png", path / f"{i}.png")


def write_huge_npy(path: Path) -> None:
    path.write_bytes(npy_header((2**40,), "<f8") + bytes(800))


def write_huge_safetensors(path: Path) -> None:
    header = {"images": {"dtype": "F64", "shape": [2**40, 2**20], "data_offsets": [0, 2**63]}}
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(800))


def write_huge_safetensors_header(path: Path) -> None:
    path.write_bytes(struct.pack("<Q", 2**62) + b"{}" + bytes(800))


def write_lying_npz(path: Path) -> None:
    """A member that declares 4 GiB in the directory, and holds 100 bytes."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("images.npy", npy_header((100,)) + bytes(100))
    content = bytearray(path.read_bytes())
    entry = content.find(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(content)


def read_fashion(folder: Path) -> Any:
    return read_fashion_mnist("train", folder)


def write_old_pt_that_asks_for_4_gib(path: Path) -> None:
    """A text of 4 GiB, of which one letter is there: Python would take the memory before it looks."""
    path.write_bytes(b"\x80\x02X\xfe\xff\xff\xffa")


BOMBS: dict[str, tuple[Callable[[Path], None], str, Callable[[Path], Any]]] = {
    "a.npz": (write_npz_bomb, "decompression bomb", dpstride.read_data),
    "lying.npz": (write_lying_npz, "decompression bomb", dpstride.read_data),
    "a.pt": (write_pt_bomb, "decompression bomb", dpstride.read_data),
    "b.pt": (write_pickle_bomb, "decompression bomb", dpstride.read_data),
    "old.pt": (write_old_pt_that_asks_for_4_gib, "its pickle is damaged", dpstride.read_data),
    "gz": (write_gz_bomb, "decompression bomb", read_fashion),
    "small gz": (write_gz_bomb_behind_a_small_header, "not as many bytes", read_fashion),
    "png": (write_png_bomb, "could be decompression bomb", dpstride.read_data),
    "pngs": (write_many_small_png_bombs, "decompression bomb", dpstride.read_data),
    "a.npy": (write_huge_npy, "8,796,093,022,208 bytes, but only 800 follow", dpstride.read_data),
    "a.safetensors": (write_huge_safetensors, "not a whole safetensors file", dpstride.read_data),
    "b.safetensors": (write_huge_safetensors_header, "not a whole safetensors file", dpstride.read_data),
    "statistics": (write_huge_safetensors, "safetensors", dpstride.Statistics.load),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_unpacks(tmp_path: Path, name: str) -> None:
    write, match, read = BOMBS[name]
    write(tmp_path / name)
    with pytest.raises(ValueError, match=match) as refusal, limited_memory() as grown:
        read(tmp_path / name)
    assert str(tmp_path / name) in str(refusal.value)
    assert grown[0] < 100 * 2**20, f"{grown[0] / 2**20:.0f} MiB"


@contextmanager
def limited_memory() -> Iterator[list[int]]:
    """At most 1 GiB of addresses more than now, and in the list afterwards by how much the peak of memory grew."""

    def status(name: str) -> int:
        text = Path("/proc/self/status").read_text()
        return 1024 * int(text.split(f"{name}:")[1].split()[0])

    Path("/proc/self/clear_refs").write_text("5")  # the peak is now what is in use
    before, (soft, hard) = status("VmHWM"), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + GIB, hard))
    grown = [0]
    try:
        yield grown
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        grown[0] = status("VmHWM") - before


def test_the_peak_of_memory_is_measured() -> None:
    """The oracle of the test above: 200 MiB are seen, and 2 GiB are not given."""
    with limited_memory() as grown:
        np.ones(200 * 2**20, np.uint8)
    assert grown[0] > 190 * 2**20
    with pytest.raises(MemoryError), limited_memory():
        np.ones(2 * GIB, np.uint8)


# --- JSON --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[" * 100_000, "nested deeper than 64"),
        ("[" * 65 + "]" * 65, "nested deeper than 64"),
        ('{"a": 1, "b": 2, "a": 3}', "the name 'a' is there twice"),
        ("[NaN]", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("[1e999]", "too large for a float"),
        ("[1" + "0" * 100 + "]", "a whole number of 333 bits"),
        ("[1" + "0" * 5000 + "]", "not a whole JSON file"),
        ('"\\ud800', "not a whole JSON file"),
        ("", "not a whole JSON file"),
    ],
)
def test_json_that_no_reader_should_meet(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UnreadableFileError, match=rf"a\.json: .*{match}"):
        read_json(tmp_path / "a.json")
    with pytest.raises(dpstride.ScheduleFileError, match=rf"a\.json: .*{match}"):
        dpstride.ScheduleSet.load(tmp_path / "a.json")


def test_a_name_that_comes_twice_among_many_is_found_at_once(tmp_path: Path) -> None:
    """Looking for it name by name would take as many comparisons as the square of their number: hours."""
    names = ", ".join(f'"{i}": 0' for i in range(300_000))
    (tmp_path / "a.json").write_text(f'{{{names}, "299999": 1}}')
    with pytest.raises(UnreadableFileError, match="the name '299999' is there twice"):
        read_json(tmp_path / "a.json")


def test_a_file_without_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpstride.reading.documents.MOST_BYTES", 2**20)
    with pytest.raises(UnreadableFileError, match=r"/dev/zero: .*it has more than 1,048,576 bytes"):
        read_json("/dev/zero")
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        dpstride.read_data("/dev/zero")


# --- names and places --------------------------------------------------------------------------------------------------


def test_names_in_archives_are_never_paths(tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 1, 3, 3), np.uint8))
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "a.npz", "w") as archive:
        for name in ("images.npy", "../evil.npy", f"{tmp_path}/absolute.npy"):
            archive.writestr(name, buffer.getvalue())
    images, others = dpstride.read_data(tmp_path / "in" / "a.npz")
    assert images.shape == (2, 1, 3, 3)
    assert sorted(others) == ["../evil", f"{tmp_path}/absolute"]
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "in", tmp_path / "in" / "a.npz"}


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", b"")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("images.npy", b"")
    with pytest.raises(UnreadableFileError, match=r"holds 'images\.npy' twice"):
        dpstride.read_data(tmp_path / "a.npz")


def test_links_of_a_folder_of_images(tmp_path: Path) -> None:
    """A link to an image is an image; circles, links to nowhere and to what is no file are passed by."""
    Image.new("L", (3, 3)).save(tmp_path / "one.png")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.png").symlink_to(tmp_path / "one.png")
    (folder / "nowhere.png").symlink_to(tmp_path / "missing")
    (folder / "device.png").symlink_to("/dev/zero")
    (folder / "circle.png").symlink_to(folder / "circle.png")
    (folder / "round").symlink_to(folder)
    os.mkfifo(folder / "pipe.png")
    assert dpstride.read_data(folder).shape == (1, 1, 3, 3)


def test_an_image_that_would_run_another_program_is_refused(tmp_path: Path) -> None:
    """Pillow looks at the content, not at the name, and hands PostScript to an interpreter."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(ran) print showpage\n%%EOF\n")
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "EPS"
    with pytest.raises(UnreadableFileError, match=r"a\.png: not a readable image"):
        dpstride.read_data(tmp_path)


def test_deep_images_are_refused_not_cut_off(tmp_path: Path) -> None:
    Image.fromarray(np.full((3, 3), 40_000, np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(UnreadableFileError, match=r"a\.png: not an 8-bit image \(16 bits per channel\)"):
        dpstride.read_data(tmp_path)


# --- text that is shown ------------------------------------------------------------------------------------------------

HOSTILE = "\x1b[2J\x1b]0;owned\x07 $\\frac{$ </title>--><script>alert(1)</script> \u202egnp\r\n" + "x" * 10_000


def test_text_is_shown_on_one_line_without_control_characters() -> None:
    shown = printable(HOSTILE)
    assert shown.isprintable()
    assert len(shown) < 300
    assert shown.startswith(r"\x1b[2J\x1b]0;owned\x07 $\frac{$")
    assert r"\u202egnp\r\n" in shown
    assert printable("Größe 4 × 4 ✓") == "Größe 4 × 4 ✓"
    assert printable_lines("one\ntwo\x1b[1m") == "one\ntwo\\x1b[1m"


# Default_Ignorable_Code_Point of Unicode 15 (DerivedCoreProperties.txt): what a screen leaves out.
IGNORABLE = [
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
]
SPACES = [0x9, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0xFFF9, 0xFFFA, 0xFFFB, 0xD800, 0xDFFF]
EMPTY = [0x2800, 0x16FE4, 0x1D159]  # signs without a picture


def test_a_near_name_is_looked_for_among_a_thousand_short_ones() -> None:
    """Comparing takes as long as the names are, squared; a folder may hold a million."""
    taken: list[int] = []

    def names(length: int) -> Iterator[str]:
        for i in range(100_000):
            taken.append(i)
            yield str(i).rjust(length, "x")

    assert hint("x" * 30, names(30)).startswith(" Did you mean x")
    assert len(taken) <= 1000
    assert hint("x" * 10_000, names(10_000)) == ""
    assert hint("x" * 100, ["y" * 10_000, "x" * 99]) == f" Did you mean {'x' * 99}?"


def test_no_character_is_shown_as_nothing() -> None:
    ignorable = [code for first, last in IGNORABLE for code in range(first, last + 1)]
    for code in (*ignorable, *SPACES, *CONTROLS, *EMPTY):
        shown = printable(f"a{chr(code)}b")
        assert shown.isascii(), hex(code)
        assert shown.isprintable(), hex(code)
        assert shown not in ("ab", f"a{chr(code)}b"), hex(code)
        assert one_line(chr(code)) == shown[1:-1]
    for text in ("naïve Größe 4 × 4 ✓", "x̂₀", "日本語", "한글", "ไทย", "मॉडल", "🙂", "a b"):
        assert printable(text) == text == one_line(text)
    assert one_line("a\nb" * 1000) == "a\\nb" * 1000


def test_a_hostile_name_of_a_model_is_drawn_as_text(tmp_path: Path) -> None:
    from xml.etree import ElementTree

    from dpstride.evaluate.comparison import Comparison, compare
    from dpstride.report.figures import save_figures

    denoiser = dpstride.Denoiser(lambda x, time: 0.1 * x, dpstride.ForwardProcess.linear(6), name=HOSTILE)
    images = torch.randint(0, 256, (4, 1, 2, 2), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    schedules = dpstride.optimise(denoiser, images, progress=False)
    compare(schedules, dpstride.estimate(denoiser, images, seed=1, progress=False)).save(tmp_path / "comparison.json")
    comparison = Comparison.load(tmp_path / "comparison.json")
    assert comparison.model["name"] == HOSTILE
    for path in save_figures(comparison, schedules, tmp_path):
        if path.suffix == ".svg":
            ElementTree.parse(path)  # well-formed: the name has not left its place
            assert "<script" not in path.read_text()
