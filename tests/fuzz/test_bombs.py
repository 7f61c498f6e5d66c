"""Files that ask for more memory than they have bytes are refused before they unpack."""

from __future__ import annotations

import gzip
import io
import json
import os
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
from hostile_files import tensor_program
from model_files import make_characters, read_characters
from PIL import Image

import dpstride
from dpstride.zoo.idx import read_fashion_mnist

pytestmark = pytest.mark.attack("files that take memory, time or other files")

GIB = 2**30


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


def write_wide_characters(folder: Path, layers: int = 2) -> None:
    """A model of characters of a few kilobytes whose description asks for gigabytes of weights."""
    make_characters(folder)
    facts = json.loads((folder / "dpstride.json").read_text())
    (folder / "dpstride.json").write_text(json.dumps(facts | {"width": 8192, "layers": layers}))


def write_deep_characters(folder: Path) -> None:
    write_wide_characters(folder, layers=256)


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
    "wide characters": (write_wide_characters, "Missing key|size mismatch", read_characters),
    "deep characters": (write_deep_characters, "it claims 256 layers, but the weights have", read_characters),
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
