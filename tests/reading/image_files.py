"""Image files made by hand and by Pillow."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (4, 6, 3), dtype=np.uint8)
GREY = COLOUR[..., 0]
TWO = np.where(GREY > 127, 255, 0).astype(np.uint8)
PALE = np.array([[0, 0, 0], [255, 0, 0], [0, 128, 0], [9, 9, 200]], dtype=np.uint8)  # a palette
CHOSEN = RNG.integers(0, 4, (4, 6), dtype=np.uint8)


def png(
    pixels: np.ndarray, kind: int, depth: int = 8, more: dict[bytes, bytes] | None = None, width: int | None = None
) -> bytes:
    """A PNG by its specification: colour type 0 grey, 2 colour, 3 palette, 4 grey and alpha, 6 colour and alpha."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width = pixels.shape[0], width or pixels.shape[1]
    rows = b"".join(b"\0" + row.astype(">u2" if depth == 16 else np.uint8).tobytes() for row in pixels)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0))
    others = b"".join(chunk(name, content) for name, content in (more or {}).items())
    return b"\x89PNG\r\n\x1a\n" + head + others + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def tiff(
    pixels: np.ndarray,
    *,
    sample_format: int = 1,
    colour_map: np.ndarray | None = None,
    rows: int = 0,
    planes: int = 1,
    further: tuple[int, ...] = (),
) -> bytes:
    """An uncompressed TIFF in one strip, which may say that it has more ``rows`` and ``planes`` of colours than that.

    Channels beyond colour have the meanings ``further``: 0 none, 1 and 2 alpha.
    """
    height, width, channels = (*pixels.shape, 1)[:3]
    bits, raw = 8 * pixels.itemsize, pixels.astype(pixels.dtype.newbyteorder("<")).tobytes()
    photometric = 3 if colour_map is not None else 1 if channels < 3 else 2
    fields: dict[int, tuple[int, tuple[int, ...]]] = {
        256: (4, (width,)), 257: (4, (height,)), 258: (3, (bits,) * channels), 259: (3, (1,)), 262: (3, (photometric,)),
        273: (4, (0,)), 277: (3, (channels,)), 278: (4, (height,)), 279: (4, (len(raw),)),
        339: (3, (sample_format,) * channels),
    }  # fmt: skip
    if further:
        fields[338] = (3, further)
    if rows:
        fields[257] = (4, (rows,))
    if planes > 1:
        fields |= {
            258: (3, (8,) * planes),
            262: (3, (2,)),
            277: (3, (planes,)),
            284: (3, (2,)),
            339: (3, (1,) * planes),
        }
    if colour_map is not None:
        fields[320] = (3, tuple(int(value) for value in colour_map.ravel()))
    start = 8 + 2 + 12 * len(fields) + 4
    beyond, entries = b"", b""
    sizes = {3: ("<H", 2), 4: ("<I", 4)}
    extra = sum(len(v) * sizes[k][1] for k, v in fields.values() if len(v) * sizes[k][1] > 4)
    fields[273] = (4, (start + extra,))
    for tag, (kind, values) in sorted(fields.items()):
        packed = b"".join(struct.pack(sizes[kind][0], value) for value in values)
        place = packed.ljust(4, b"\0") if len(packed) <= 4 else struct.pack("<I", start + len(beyond))
        beyond += packed if len(packed) > 4 else b""
        entries += struct.pack("<HHI", tag, kind, len(values)) + place
    return b"II*\0" + struct.pack("<IH", 8, len(fields)) + entries + bytes(4) + beyond + raw


def saved(image: Any, **options: Any) -> Callable[[Path], None]:
    return lambda path: image.save(path, **options)


def written(content: bytes) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(content) and None


def alpha(pixels: np.ndarray, level: int) -> np.ndarray:
    return np.dstack([pixels, np.full(pixels.shape[:2], level, np.uint8)])


def palette_image(**info: Any) -> Image.Image:
    image = Image.new("P", (6, 4))
    image.putdata(CHOSEN.ravel().tolist())
    image.putpalette(PALE.ravel().tolist())
    image.info.update(info)
    return image


SHADES = np.array([0, 85, 170, 255], dtype=np.uint8)  # what two bits of grey mean
FOUR = np.packbits(np.unpackbits(CHOSEN[..., None], axis=-1)[..., -2:].reshape(4, -1), axis=1)
FIVE = RNG.integers(0, 32, (4, 6, 3), dtype=np.uint16)  # of a BMP of 16 bits


def made(
    width: int, height: int, depth: int, kind: int, rows: bytes, interlaced: int = 0, before: bytes = b""
) -> bytes:
    """A PNG of the rows as they are packed."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlaced))
    return b"\x89PNG\r\n\x1a\n" + before + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def woven(pixels: np.ndarray) -> bytes:
    """Rows in the seven passes of an interlaced PNG (PNG specification, 8.2)."""
    parts = [pixels[0::8, 0::8], pixels[0::8, 4::8], pixels[4::8, 0::4], pixels[0::4, 2::4], pixels[2::4, 0::2]]
    parts += [pixels[0::2, 1::2], pixels[1::2, 0::1]]
    return b"".join(b"\0" + row.tobytes() for part in parts if part.size for row in part)


def bmp(pixels: bytes, bits: int, palette: bytes = b"") -> bytes:
    """A BMP of 6 × 4 pixels, whose rows are packed from the lowest up."""
    start = 54 + len(palette)
    sizes = struct.pack("<IiiHHIIiiII", 40, 6, 4, 1, bits, 0, len(pixels), 0, 0, len(palette) // 4, 0)
    return b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start) + sizes + palette + pixels
