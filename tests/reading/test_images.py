"""Image files of every kind: each is read as its pixels are, or refused by name; measuring and reading agree."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import (
    CHOSEN,
    COLOUR,
    FIVE,
    FOUR,
    GREY,
    PALE,
    RNG,
    SHADES,
    TWO,
    alpha,
    bmp,
    made,
    palette_image,
    png,
    saved,
    tiff,
    woven,
    written,
)
from PIL import Image

import dpstride
from dpstride.reading.images import measure_image, read_image
from dpstride.reading.limits import UnreadableFileError

pytestmark = pytest.mark.attack("images that would lose something")

ROWS = b"".join(b"\0" + row.tobytes() for row in COLOUR)
TEXT = struct.pack(">I", 3) + b"tEXta\0b" + struct.pack(">I", zlib.crc32(b"tEXta\0b"))
BLUE_FIRST = b"".join(bytes([*colour[::-1], 0]) for colour in PALE)
EXACT: dict[str, tuple[str, Callable[[Path], None], np.ndarray]] = {
    "grey PNG": ("a.png", saved(Image.fromarray(GREY)), GREY),
    "colour PNG": ("a.png", saved(Image.fromarray(COLOUR)), COLOUR),
    "PNG by hand": ("a.png", written(png(COLOUR, 2)), COLOUR),
    "PNG of 1 bit": ("a.png", saved(Image.fromarray(TWO).convert("1")), TWO),
    "PNG of 2 bits": (
        "a.png",
        written(png(FOUR, 0, 2, width=6)),
        SHADES[CHOSEN],
    ),
    "PNG with a palette": ("a.png", saved(palette_image()), PALE[CHOSEN]),
    "PNG with a grey palette": (
        "a.png",
        written(png(CHOSEN, 3, more={b"PLTE": np.repeat(SHADES, 3).tobytes()})),
        SHADES[CHOSEN],
    ),
    "opaque RGBA PNG": ("a.png", written(png(alpha(COLOUR, 255), 6)), COLOUR),
    "opaque LA PNG": ("a.png", written(png(alpha(GREY, 255), 4)), GREY),
    "PNG with an unused transparent grey": ("a.png", written(png(GREY | 1, 0, more={b"tRNS": b"\0\0"})), GREY | 1),
    "PNG with an opaque palette": (
        "a.png",
        written(png(CHOSEN, 3, more={b"PLTE": PALE.tobytes(), b"tRNS": b"\xff" * 4})),
        PALE[CHOSEN],
    ),
    "interlaced PNG": ("a.png", written(made(6, 4, 8, 2, woven(COLOUR), 1)), COLOUR),
    "interlaced grey PNG": ("a.png", written(made(6, 4, 8, 0, woven(GREY), 1)), GREY),
    "PNG of 2 bits with an unused transparent grey": (
        "a.png",
        written(png(np.packbits(np.tile([0, 1, 1, 1], (4, 3)), axis=1), 0, 2, more={b"tRNS": b"\0\2"}, width=6)),
        np.tile(np.array([85, 255], np.uint8), (4, 3)),
    ),
    "animation of one frame": (
        "a.png",
        written(
            png(
                COLOUR,
                2,
                more={
                    b"acTL": struct.pack(">II", 1, 0),
                    b"fcTL": struct.pack(">IIIIIHHBB", 0, 6, 4, 0, 0, 1, 1, 0, 0),
                },
            )
        ),
        COLOUR,
    ),
    "grey TIFF": ("a.tif", written(tiff(GREY)), GREY),
    "colour TIFF": ("a.tif", written(tiff(COLOUR)), COLOUR),
    "TIFF of 1 bit": ("a.tif", saved(Image.fromarray(TWO).convert("1")), TWO),
    "TIFF with a palette": (
        "a.tif",
        written(tiff(CHOSEN, colour_map=np.pad(257 * PALE.astype(int), ((0, 252), (0, 0))).T)),
        PALE[CHOSEN],
    ),
    "TIFF by LZW": ("a.tiff", saved(Image.fromarray(COLOUR), compression="tiff_lzw"), COLOUR),
    "BMP": ("a.bmp", saved(Image.fromarray(COLOUR)), COLOUR),
    "BMP of 5 bits per channel": (
        "a.bmp",
        written(bmp((FIVE[..., 0] << 10 | FIVE[..., 1] << 5 | FIVE[..., 2])[::-1].astype("<u2").tobytes(), 16)),
        (FIVE * 255 // 31).astype(np.uint8),
    ),
    "BMP with a palette": (
        "a.bmp",
        written(bmp(np.pad(CHOSEN, ((0, 0), (0, 2)))[::-1].tobytes(), 8, BLUE_FIRST)),
        PALE[CHOSEN],
    ),
    "grey BMP": ("a.bmp", saved(Image.fromarray(GREY)), GREY),
    "lossless WebP": ("a.webp", saved(Image.fromarray(COLOUR), lossless=True), COLOUR),
    "opaque WebP with alpha": ("a.webp", saved(Image.fromarray(alpha(COLOUR, 255)), lossless=True), COLOUR),
    "GIF of one frame": ("a.gif", saved(palette_image()), PALE[CHOSEN]),
    "grey GIF": ("a.gif", saved(Image.fromarray(GREY)), GREY),
    "PGM": ("a.pgm", saved(Image.fromarray(GREY)), GREY),
    "PPM": ("a.ppm", written(b"P6 # a comment\n6 4\n#another\n255\n" + COLOUR.tobytes()), COLOUR),
    "plain PPM": ("a.ppm", written(b"P3\n6 4\n255\n" + b" ".join(b"%d" % v for v in COLOUR.ravel())), COLOUR),
    "PBM": ("a.pgm", written(b"P4\n6 4\n" + np.packbits(TWO == 0, axis=1).tobytes()), TWO),
    "plain PBM": ("a.pgm", written(b"P1\n6 4\n" + b" ".join(b"%d" % v for v in (TWO == 0).ravel())), TWO),
    "PGM up to 15": ("a.pgm", written(b"P5 6 4 15 " + (GREY % 16).tobytes()), GREY % 16 * 17),
    "PPM up to 100": (
        "a.ppm",
        written(b"P6 6 4 100 " + (COLOUR % 101).tobytes()),
        np.round((COLOUR % 101).astype(int) * 255 / 100).astype(np.uint8),
    ),
    "PPM and a line break": ("a.ppm", written(b"P6 6 4 255\n" + COLOUR.tobytes() + b"\r\n"), COLOUR),
}


@pytest.mark.parametrize("kind", EXACT)
def test_what_is_read_is_read_exactly(tmp_path: Path, kind: str) -> None:
    name, write, pixels = EXACT[kind]
    write(tmp_path / name)
    np.testing.assert_array_equal(read_image(tmp_path / name), pixels)
    assert measure_image(tmp_path / name) == (*pixels.shape, 1)[:3]
    data = dpstride.read_data(tmp_path).numpy()
    np.testing.assert_array_equal(data, (pixels[None, None] if pixels.ndim == 2 else np.moveaxis(pixels, -1, 0)[None]))


DEEP = RNG.integers(0, 65536, (4, 6, 4), dtype=np.uint16)
OTHER = np.roll(COLOUR, 1, axis=0)
FRAMES: dict[str, Any] = {"save_all": True, "append_images": [Image.fromarray(OTHER)]}
BITS, FRAME, CLEAR = r"not an 8-bit image \({}", "holds several frames or pages", "has transparent pixels"
LACKING = "not a readable image, its pixels have colours beyond its palette"
PIXELS = (
    CLEAR,
    LACKING,
    "not a readable image, its last rows",
    "not a readable image, it holds 16",
)  # not seen in a header
REFUSED: dict[str, tuple[str, Callable[[Path], None], str]] = {
    "grey PNG of 16 bits": ("a.png", written(png(DEEP[..., 0], 0, 16)), BITS.format("16 bits")),
    "colour PNG of 16 bits": ("a.png", written(png(DEEP[..., :3], 2, 16)), BITS.format("16 bits")),
    "LA PNG of 16 bits": ("a.png", written(png(DEEP[..., :2], 4, 16)), BITS.format("16 bits")),
    "RGBA PNG of 16 bits": ("a.png", written(png(DEEP, 6, 16)), BITS.format("16 bits")),
    "PNG of 16 bits by another name": ("a.jpg", written(png(DEEP, 6, 16)), BITS.format("16 bits")),
    "grey TIFF of 16 bits": ("a.tif", written(tiff(DEEP[..., 0])), BITS.format("16 bits")),
    "colour TIFF of 16 bits": ("a.tif", written(tiff(DEEP[..., :3])), BITS.format("16 bits")),
    "TIFF of floats": ("a.tif", saved(Image.fromarray(GREY.astype(np.float32))), BITS.format("32 bits")),
    "TIFF of signed bytes": ("a.tif", written(tiff(GREY, sample_format=2)), BITS.format("signed")),
    "grey TIFF with another channel": (
        "a.tif",
        written(tiff(COLOUR[..., :2], further=(0,))),
        r"(has 2 channels, but only 1 would be read|not a readable image \(cannot identify)",  # as an older Pillow says
    ),
    "colour TIFF with another channel": (
        "a.tif",
        written(tiff(np.dstack([COLOUR, GREY]), further=(0,))),
        "has 4 channels, but only 3 would be read",
    ),
    "TIFF of six channels": (
        "a.tif",
        written(tiff(np.dstack([COLOUR, COLOUR]), further=(0, 0, 0))),
        "has 6 channels, but only",
    ),
    "TIFF with a deep palette": (
        "a.tif",
        written(tiff(CHOSEN, colour_map=RNG.integers(0, 65536, (3, 256)))),
        BITS.format("a palette of 16 bits"),
    ),
    "PNG without its last row": ("a.png", written(made(6, 4, 8, 2, ROWS[:-19])), "not a readable image, its last rows"),
    "interlaced PNG without its last row": (
        "a.png",
        written(made(6, 4, 8, 2, woven(COLOUR)[:-19], 1)),
        "not a readable image, its last rows",
    ),
    "PNG of 16 bits behind a text": (
        "a.png",
        written(made(6, 4, 16, 2, ROWS, before=TEXT)),
        "not a readable image, its header is not its first chunk",
    ),
    "PNG without a palette": ("a.png", written(png(CHOSEN, 3)), LACKING),
    "PNG of colours beyond its palette": (
        "a.png",
        written(png(CHOSEN + 3, 3, more={b"PLTE": PALE.tobytes()})),
        LACKING,
    ),
    "BMP of colours beyond its palette": (
        "a.bmp",
        written(bmp(np.pad(CHOSEN + 3, ((0, 0), (0, 2))).tobytes(), 8, BLUE_FIRST)),
        LACKING,
    ),
    "PGM beyond its largest value": (
        "a.pgm",
        written(b"P5 6 4 15 " + bytes([16] * 24)),
        "not a readable image, it holds 16",
    ),
    "TGA by another name": ("a.png", saved(Image.fromarray(COLOUR), format="TGA"), "not a readable image"),
    "TIFF without its last strip": ("a.tif", written(tiff(COLOUR, rows=8)), "not a readable image, some of its pixels"),
    "TIFF without two of its colours": (
        "a.tif",
        written(tiff(GREY, planes=3)),
        "not a readable image, some of its pixels",
    ),
    "PPM up to 65535": (
        "a.ppm",
        written(b"P6 6 4 65535 " + DEEP[..., :3].astype(">u2").tobytes()),
        BITS.format("values up"),
    ),
    "PPM up to 1023": (
        "a.ppm",
        written(b"P6\n#x\n6 4 1023 " + (DEEP[..., :3] % 1024).astype(">u2").tobytes()),
        BITS.format("values up to 1023"),
    ),
    "plain PPM up to 300": ("a.ppm", written(b"P3 6 4 300 " + b"299 " * 72), BITS.format("values up to 300")),
    "PGM up to 65535": (
        "a.pgm",
        written(b"P5 6 4 65535 " + DEEP[..., 0].astype(">u2").tobytes()),
        BITS.format("values up"),
    ),
    "PFM": ("a.pgm", written(b"Pf 6 4 -1.0 " + GREY.astype("<f4").tobytes()), BITS.format("mode F")),
    "animated GIF": ("a.gif", saved(palette_image(), **FRAMES), FRAME),
    "animated PNG": ("a.png", saved(Image.fromarray(COLOUR), **FRAMES), FRAME),
    "PNG with another image as animation": (
        "a.png",
        saved(Image.fromarray(COLOUR), default_image=True, **FRAMES),
        FRAME,
    ),
    "animated WebP": ("a.webp", saved(Image.fromarray(COLOUR), lossless=True, **FRAMES), FRAME),
    "TIFF of two pages": ("a.tif", saved(Image.fromarray(COLOUR), **FRAMES), FRAME),
    "JPEG of two pictures": ("a.jpg", saved(Image.fromarray(COLOUR), format="MPO", **FRAMES), FRAME),
    "two PPMs in one": ("a.ppm", written(2 * (b"P6 6 4 255 " + COLOUR.tobytes())), FRAME),
    "RGBA PNG": ("a.png", written(png(alpha(COLOUR, 254), 6)), CLEAR),
    "LA PNG": ("a.png", written(png(alpha(GREY, 0), 4)), CLEAR),
    "PNG with a transparent grey": ("a.png", written(png(GREY, 0, more={b"tRNS": bytes([0, GREY[0, 0]])})), CLEAR),
    "PNG with a transparent colour": (
        "a.png",
        written(png(COLOUR, 2, more={b"tRNS": COLOUR[0, 0].astype(">u2").tobytes()})),
        CLEAR,
    ),
    "PNG of 1 bit with a transparent white": (
        "a.png",
        written(png(np.packbits(TWO > 0, axis=1), 0, 1, more={b"tRNS": b"\0\1"}, width=6)),
        CLEAR,
    ),
    "PNG of 2 bits with a transparent grey": (
        "a.png",
        written(png(FOUR, 0, 2, more={b"tRNS": b"\0\1"}, width=6)),
        CLEAR,
    ),
    "PNG of 4 bits with a transparent grey": (
        "a.png",
        written(png(CHOSEN[:, ::2] << 4 | CHOSEN[:, 1::2], 0, 4, more={b"tRNS": b"\0\2"}, width=6)),
        CLEAR,
    ),
    "PNG with a transparent entry": (
        "a.png",
        written(png(CHOSEN, 3, more={b"PLTE": PALE.tobytes(), b"tRNS": b"\xff\x80"})),
        CLEAR,
    ),
    "GIF with a transparent entry": ("a.gif", saved(palette_image(), transparency=1), CLEAR),
    "WebP with alpha": ("a.webp", saved(Image.fromarray(alpha(COLOUR, 7)), lossless=True), CLEAR),
    "TIFF with alpha": ("a.tif", saved(Image.fromarray(alpha(COLOUR, 7))), CLEAR),
    "CMYK JPEG": ("a.jpg", saved(Image.fromarray(COLOUR).convert("CMYK")), "its colours are CMYK"),
    "CMYK TIFF": ("a.tif", saved(Image.fromarray(COLOUR).convert("CMYK")), "its colours are CMYK"),
    "LAB TIFF": ("a.tif", saved(Image.frombytes("LAB", (6, 4), COLOUR.tobytes())), "its colours are LAB"),
}


GAPPED = np.random.default_rng(7).integers(0, 256, (33, 50, 3), dtype=np.uint8)
JPEGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "of fine colours": {"quality": 100, "subsampling": 0},
    "in intervals": {"restart_marker_blocks": 4},
    "progressive": {"progressive": True},
    "progressive, in intervals": {"progressive": True, "restart_marker_rows": 1},
}


@pytest.mark.parametrize("colour", ["L", "RGB"])
@pytest.mark.parametrize("kind", JPEGS)
def test_a_jpeg_closed_again_behind_a_gap_is_refused_and_a_whole_one_is_not(
    kind: str, colour: str, tmp_path: Path
) -> None:
    """Decoders fill the gap with grey and say nothing, as long as the marker at the end is there."""
    path = tmp_path / "a.jpg"
    Image.fromarray(GAPPED).convert(colour).save(path, **JPEGS[kind])
    whole = path.read_bytes()
    with Image.open(path) as image:
        assert np.array_equal(read_image(path), np.array(image))
    pixels = whole.index(b"\xff\xda")
    for part in (0.3, 0.6, 0.95) if kind in ("plain", "of fine colours") else (0.99,):
        path.write_bytes(whole[: pixels + int(part * (len(whole) - pixels))].rstrip(b"\xff") + b"\xff\xd9")
        with pytest.raises(UnreadableFileError, match=r"a\.jpg: .*(would be grey|truncated)"):
            read_image(path)


def test_a_jpeg_that_says_it_is_taller_than_its_pixels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    Image.fromarray(GAPPED).save(path)
    content = path.read_bytes()
    height = content.index(b"\xff\xc0") + 5
    path.write_bytes(content[:height] + struct.pack(">H", 330) + content[height + 2 :])
    with pytest.raises(
        UnreadableFileError, match=r"a\.jpg: .*some of its pixels are not in the file and would be grey"
    ):
        read_image(path)


@pytest.mark.parametrize("kind", REFUSED)
def test_what_would_be_changed_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    name, write, match = REFUSED[kind]
    write(tmp_path / name)
    with pytest.raises(UnreadableFileError, match=rf"{name}: {match}"):
        read_image(tmp_path / name)
    with pytest.raises(UnreadableFileError, match=match):
        dpstride.read_data(tmp_path)
    if match not in PIXELS:
        with pytest.raises(UnreadableFileError, match=match):
            measure_image(tmp_path / name)


def test_a_frame_that_covers_a_part_of_a_gif_is_refused(tmp_path: Path) -> None:
    saved(palette_image())(tmp_path / "a.gif")
    content = bytearray((tmp_path / "a.gif").read_bytes())
    content[6:10] = struct.pack("<HH", 9, 9)
    (tmp_path / "a.gif").write_bytes(content)
    with pytest.raises(UnreadableFileError, match="covers only a part of the image"):
        read_image(tmp_path / "a.gif")
