"""Values that damaged files hold."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

Draw = Callable[[st.SearchStrategy[Any]], Any]

NUMBERS = st.sampled_from(
    [0, 1, -1, 2, 127, 255, 2**16, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63, 2**64, -(2**63), 10**9]
)
TEXTS = st.sampled_from(
    [
        *(
            "",
            " ",
            "a",
            "../../../etc/passwd",
            "/etc/passwd",
            "/dev/zero",
            "..",
            "con",
            "a\0b",
            "a\nb",
            "\x1b[2J",
            "$\\frac",
        ),
        *(
            "<script>alert(1)</script>",
            "\u202egnp.exe",
            "é" * 300,
            "x" * 100_000,
            "os",
            "system",
            "__class__",
            "nan",
            "1e999",
        ),
        *(
            "posterior",
            "optimal",
            "learned_range",
            "linear",
            "discrete",
            "eps",
            "uint8",
            "F64",
            "BF16",
            "I8",
            "float8_e4m3fn",
        ),
    ]
) | st.text(max_size=8)


# --- blindly -----------------------------------------------------------------------------------------------------------


@st.composite
def damaged(draw: Draw, content: bytes, other: bytes) -> bytes:
    """``content`` with one to four accidents; ``other`` is a file of the same kind to splice in."""
    result = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(result) - 1, 0)))
        length = draw(st.integers(0, 64))
        match draw(
            st.sampled_from(["flip", "flip", "flip", "number", "cut", "drop", "repeat", "splice", "noise", "zero"])
        ):
            case "flip" if result:
                result[at] ^= 1 << draw(st.integers(0, 7))
            case "number":
                size = draw(st.sampled_from(["<H", ">H", "<I", ">I", "<Q", ">Q"]))
                value = draw(NUMBERS) % 2 ** (8 * struct.calcsize(size))
                result[at : at + struct.calcsize(size)] = struct.pack(size, value)
            case "cut":
                del result[at:]
            case "drop":
                del result[at : at + length]
            case "repeat":
                result[at:at] = result[at : at + length] * draw(st.integers(1, 9))
            case "splice":
                start = draw(st.integers(0, max(len(other) - 1, 0)))
                result[at:] = other[start:]
            case "noise":
                result[at:at] = draw(st.binary(max_size=64))
            case "zero":
                result[at : at + length] = bytes(len(result[at : at + length]))
    return bytes(result)


NOISE = st.binary(max_size=256)


@st.composite
def edited_zip(draw: Draw, content: bytes, member: Callable[[str, bytes], st.SearchStrategy[bytes]]) -> bytes:
    """A zip written anew, with members edited by ``member``, renamed, repeated or left out, and sizes that lie."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    chosen = draw(st.integers(0, len(members) - 1))
    name, value = members[chosen]
    match draw(st.sampled_from(["edit"] * 6 + ["rename", "repeat", "remove", "extra", "bomb"])):
        case "edit":
            members[chosen] = (name, draw(member(name, value)))
        case "rename":
            renamed = st.sampled_from(
                ["../../evil.npy", "/tmp/evil.npy", "evil/../../x.npy", "images", "a" * 60_000, "\x1b.npy"]
            )
            members[chosen] = (draw(renamed), value)
        case "repeat":
            members.append((name, value))
        case "remove":
            del members[chosen]
        case "extra":
            members.append((draw(TEXTS) or "x", draw(NOISE)))
        case "bomb":
            members[chosen] = (name, value + bytes(draw(st.sampled_from([10**6, 3 * 10**7]))))
    buffer = io.BytesIO()
    method = draw(st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2]))
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, value in members:
            try:
                archive.writestr(name.replace("\0", "")[:60_000] or "x", value)
            except UnicodeEncodeError:  # a lone surrogate is no name in a zip
                archive.writestr("surrogate", value)
    result = bytearray(buffer.getvalue())
    if draw(st.integers(0, 3)) == 0:  # a directory entry that lies about sizes, checksum or place
        entry = result.find(b"PK\x01\x02")
        field = draw(st.sampled_from([8, 10, 16, 20, 24, 42]))
        if entry >= 0:
            result[entry + field : entry + field + 4] = struct.pack("<I", draw(NUMBERS) % 2**32)
    return bytes(result)
