"""Hypothesis strategies that turn the bytes of a good file into those of a bad one, blindly or knowing the format."""

from __future__ import annotations

import copy
import gzip
import io
import json
import struct
import zlib
from typing import Any

import numpy as np
from draws import NOISE, NUMBERS, TEXTS, Draw, damaged, edited_zip
from hypothesis import strategies as st

REALS = st.sampled_from([0.0, -0.0, 0.5, -1.0, 1e-308, 1e308, float("nan"), float("inf"), -float("inf")]) | st.floats()
LEAVES = st.none() | st.booleans() | NUMBERS | st.integers() | st.just(10**400) | REALS | TEXTS
ANYTHING = LEAVES | st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)


# --- JSON --------------------------------------------------------------------------------------------------------------


@st.composite
def edited_json(draw: Draw, content: bytes, names: tuple[str, ...] = ()) -> bytes:
    """A document with values replaced, removed, moved or added; sometimes what no JSON writer would write."""
    document = json.loads(content)
    for _ in range(draw(st.integers(1, 3))):
        _edit(draw, document, names)
    text = json.dumps(document)
    match draw(st.sampled_from(["plain"] * 12 + ["deep", "twice", "bom", "latin"])):
        case "deep":
            depth = draw(st.sampled_from([30, 70, 900, 100_000]))
            text = (
                text.replace("null", "[" * depth + "]" * depth, 1)
                if "null" in text
                else "[" * depth + text + "]" * depth
            )
        case "twice" if text.startswith("{"):
            text = text[:-1] + ", " + text[1:]
        case "bom":
            return "\ufeff".encode() + text.encode()
        case "latin":
            return text.encode("utf-16")
    return text.encode()


def _edit(draw: Draw, document: Any, names: tuple[str, ...]) -> None:
    node = document
    while isinstance(node, (dict, list)) and node:
        keys = sorted(node) if isinstance(node, dict) else range(len(node))
        key = draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or not node[key] or draw(st.integers(0, 3)) == 0:
            match draw(st.sampled_from(["replace", "replace", "replace", "remove", "add", "copy"])):
                case "replace":
                    node[key] = draw(ANYTHING)
                case "remove":
                    del node[key]
                case "add" if isinstance(node, dict):
                    node[draw(st.sampled_from(names) if names else TEXTS)] = draw(ANYTHING)
                case "copy":
                    other = draw(st.sampled_from(keys))
                    if other in node if isinstance(node, dict) else other < len(node):
                        node[key] = copy.deepcopy(node[other])
            return
        node = node[key]


# --- safetensors -------------------------------------------------------------------------------------------------------


@st.composite
def edited_safetensors(draw: Draw, content: bytes) -> bytes:
    """Another header before the same bytes: shapes, types, offsets, names and the metadata's own JSON."""
    length = int.from_bytes(content[:8], "little")
    header, body = json.loads(content[8 : 8 + length]), content[8 + length :]
    metadata = header.get("__metadata__", {})
    if draw(st.integers(0, 3)):
        metadata.pop("sha256", None)  # else the checksum refuses everything
    inner = [key for key, value in metadata.items() if value.startswith("{")]
    if inner and draw(st.booleans()):
        key = draw(st.sampled_from(inner))
        metadata[key] = draw(edited_json(metadata[key].encode())).decode("utf-8", "replace")
    else:
        tensors = [name for name in header if name != "__metadata__"]
        for _ in range(draw(st.integers(1, 2))):
            name = draw(st.sampled_from(tensors))
            match draw(st.sampled_from(["shape", "dtype", "offsets", "rename", "reshape", "any", "values", "values"])):
                case "shape":
                    header[name]["shape"] = draw(st.lists(NUMBERS | st.integers(0, 9), max_size=5))
                case "dtype":
                    known = ["F64", "F32", "F16", "BF16", "I64", "I8", "U8", "BOOL", "F8_E4M3", "C64", "U64", "X", ""]
                    header[name]["dtype"] = draw(st.sampled_from(known))
                case "offsets":
                    header[name]["data_offsets"] = draw(st.lists(NUMBERS, min_size=2, max_size=2))
                case "rename":
                    header[draw(TEXTS)] = header.get(name)
                case "reshape":
                    shape = header[name]["shape"]
                    if isinstance(shape, list):
                        header[name]["shape"] = draw(st.permutations(shape)) if draw(st.booleans()) else [*shape, 1]
                case "any":
                    header[name] = draw(ANYTHING)
                case "values":
                    start, end = header[name]["data_offsets"]
                    if isinstance(start, int) and 0 <= start < end <= len(body):
                        at = draw(st.integers(start, end - 1))
                        body = body[:at] + draw(st.binary(min_size=1, max_size=8)) + body[at + 1 :]
                        body = body[: len(content) - 8 - length]
            if not isinstance(header.get(name), dict):
                break
    text = json.dumps(header).encode()
    declared = len(text) if draw(st.integers(0, 9)) else draw(NUMBERS) % 2**64
    return struct.pack("<Q", declared) + text + body


# --- numpy -------------------------------------------------------------------------------------------------------------


@st.composite
def edited_npy(draw: Draw, content: bytes) -> bytes:
    """Another header before the same numbers."""
    array = np.load(io.BytesIO(content))
    types = [
        "|u1",
        "<f8",
        ">f8",
        "<f4",
        "<f2",
        "<i8",
        "|b1",
        "|O",
        "<U4",
        "|S0",
        "|V0",
        "<M8[s]",
        "<c16",
        "<f16",
        "|S999999999",
    ]
    shapes = st.lists(NUMBERS | st.integers(0, 9), max_size=6).map(tuple) | st.just(array.shape) | st.just((1,) * 40)
    header = {
        "descr": draw(st.sampled_from(types) | st.just([("a", "<f8"), ("b", "|O")]) | TEXTS),
        "fortran_order": draw(st.booleans() | LEAVES),
        "shape": draw(shapes | ANYTHING),
    }
    for name in draw(st.lists(st.sampled_from(sorted(header)), max_size=2)):  # keep some entries as they were
        header[name] = {"descr": array.dtype.str, "fortran_order": False, "shape": array.shape}[name]
    text = repr(header).encode() if draw(st.integers(0, 9)) else draw(NOISE)
    version, body = draw(st.sampled_from([(1, 0), (2, 0), (3, 0), (9, 9)])), array.tobytes()
    size = struct.pack("<H" if version == (1, 0) else "<I", min(len(text), 65535))
    return (
        b"\x93NUMPY"
        + bytes(version)
        + size
        + text
        + body[: draw(st.integers(0, len(body)))]
        + draw(st.just(b"") | NOISE)
    )


def edited_npz(content: bytes) -> st.SearchStrategy[bytes]:
    return edited_zip(content, lambda name, value: edited_npy(value) | damaged(value, value))


# --- images and Fashion-MNIST --------------------------------------------------------------------------------------------


@st.composite
def edited_image(draw: Draw, content: bytes) -> bytes:
    """Another width and height where the format keeps them, with a right checksum where it has one."""
    width, height = draw(NUMBERS), draw(NUMBERS)
    result = bytearray(content)
    if content.startswith(b"\x89PNG"):
        result[16:24] = struct.pack(">II", width % 2**32, height % 2**32)
        if draw(st.booleans()):
            result[24:29] = draw(st.binary(min_size=5, max_size=5))
        result[29:33] = struct.pack(">I", zlib.crc32(bytes(result[12:29])))
    elif content.startswith(b"BM"):
        result[18:26] = struct.pack("<II", width % 2**32, height % 2**32)
    elif content.startswith(b"GIF"):
        result[6:10] = struct.pack("<HH", width % 2**16, height % 2**16)
    elif content[:2] in (b"P5", b"P6"):
        return content[:2] + f"\n{width} {height}\n{draw(NUMBERS)}\n".encode() + content[-100:]
    elif content.startswith((b"II", b"MM")):
        at = draw(st.integers(4, len(content) - 4))
        result[at : at + 4] = struct.pack("<I", draw(NUMBERS) % 2**32)
    elif content.startswith(b"\xff\xd8") and (at := content.find(b"\xff\xc0")) > 0:
        result[at + 5 : at + 9] = struct.pack(">HH", height % 2**16, width % 2**16)
    else:
        return draw(damaged(content, content))
    return bytes(result)


@st.composite
def edited_idx(draw: Draw, content: bytes) -> bytes:
    """A gzip of another header, or of far more bytes than the header says."""
    inner = gzip.decompress(content)
    shape = draw(st.lists(NUMBERS | st.integers(0, 30), max_size=4))
    magic = draw(st.sampled_from([b"\0\0\x08", b"\0\0\x0d", b"\1\0\x08"])) + bytes([draw(st.integers(0, 4))])
    header = magic + b"".join(struct.pack(">I", size % 2**32) for size in shape)
    extra = bytes(draw(st.sampled_from([0, 0, 0, 10, 10**6, 3 * 10**7])))
    return gzip.compress(draw(st.sampled_from([header, inner[:4], inner[:16]])) + inner[16:] + extra, compresslevel=1)
