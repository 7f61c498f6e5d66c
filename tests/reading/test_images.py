"""Image files of every kind: each is read as its pixels are, or refused by name; measuring and reading agree."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import dpstride
from dpstride.reading.image_rules import ORIENTATION
from dpstride.reading.images import measure_image, read_image
from dpstride.reading.limits import UnreadableFileError

pytestmark = pytest.mark.attack("images that would lose something")

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
    pixels: np.ndarray, *, sample_format: int = 1, colour_map: np.ndarray | None = None, rows: int = 0, planes: int = 1
) -> bytes:
    """An uncompressed TIFF in one strip, which may say that it has more ``rows`` and ``planes`` of colours than that."""
    height, width, channels = (*pixels.shape, 1)[:3]
    bits, raw = 8 * pixels.itemsize, pixels.astype(pixels.dtype.newbyteorder("<")).tobytes()
    photometric = 3 if colour_map is not None else 1 if channels == 1 else 2
    fields: dict[int, tuple[int, tuple[int, ...]]] = {
        256: (4, (width,)), 257: (4, (height,)), 258: (3, (bits,) * channels), 259: (3, (1,)), 262: (3, (photometric,)),
        273: (4, (0,)), 277: (3, (channels,)), 278: (4, (height,)), 279: (4, (len(raw),)),
        339: (3, (sample_format,) * channels),
    }  # fmt: skip
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
LACKING = "not a readable image, its pixels name colours that its palette"
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


# What EXIF's eight orientations mean (TIFF 6.0, page 36): where row 0 and column 0 of what is stored belong.
UPRIGHT: dict[int, Callable[[np.ndarray], np.ndarray]] = {
    1: lambda x: x,  # top, left
    2: lambda x: x[:, ::-1],  # top, right
    3: lambda x: x[::-1, ::-1],  # bottom, right
    4: lambda x: x[::-1],  # bottom, left
    5: lambda x: x.swapaxes(0, 1),  # left, top
    6: lambda x: x.swapaxes(0, 1)[:, ::-1],  # right, top
    7: lambda x: x.swapaxes(0, 1)[::-1, ::-1],  # right, bottom
    8: lambda x: x.swapaxes(0, 1)[::-1],  # left, bottom
}


@pytest.mark.parametrize("turned", [*UPRIGHT, 0, 9])
@pytest.mark.parametrize(
    ("name", "options"), [("a.png", {}), ("a.tif", {}), ("a.webp", {"lossless": True}), ("a.jpg", {})]
)
def test_images_are_turned_as_their_camera_says(
    tmp_path: Path, name: str, options: dict[str, Any], turned: int
) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = turned
    flat = np.zeros((16, 24, 3), dtype=np.uint8)  # in blocks that JPEG keeps
    flat[:8, :8], flat[:8, 8:16], flat[8:, 16:] = (250, 10, 10), (10, 250, 10), (10, 10, 250)
    pixels = flat if name == "a.jpg" else COLOUR
    Image.fromarray(pixels).save(tmp_path / name, exif=exif, **({"quality": 100, "subsampling": 0} | options))
    expected = UPRIGHT.get(turned, UPRIGHT[1])(pixels)
    found = read_image(tmp_path / name)
    assert measure_image(tmp_path / name) == found.shape == expected.shape
    assert np.abs(found.astype(int) - expected).max() <= (6 if name == "a.jpg" else 0)


def test_a_png_says_its_orientation_behind_its_pixels_too(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 6
    Image.fromarray(COLOUR).save(tmp_path / "a.png", exif=exif)
    content = (tmp_path / "a.png").read_bytes()
    start = content.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(content[start : start + 4], "big")
    moved = content[:start] + content[end:-12] + content[start:end] + content[-12:]
    (tmp_path / "a.png").write_bytes(moved)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), UPRIGHT[6](COLOUR))
    assert measure_image(tmp_path / "a.png") == (6, 4, 3)


def test_upright_and_turned_images_of_one_size_make_one_data_set(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[ORIENTATION] = 8
    Image.fromarray(COLOUR).save(tmp_path / "a.png", exif=exif)
    Image.fromarray(UPRIGHT[8](COLOUR)).save(tmp_path / "b.png")
    first, second = dpstride.read_data(tmp_path)
    assert first.equal(second)


@pytest.mark.parametrize("suffix", [".jp2", ".AVIF", ".heic", ".tga", ".eps"])
def test_an_image_of_another_format_is_not_left_out_of_a_folder(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(COLOUR).save(tmp_path / "a.png")
    (tmp_path / "b.txt").write_text("a caption")
    assert len(dpstride.read_data(tmp_path)) == 1
    Image.fromarray(COLOUR).save(tmp_path / f"b{suffix}", format="TGA")
    with pytest.raises(UnreadableFileError, match=rf"b\{suffix}: not a readable image"):
        dpstride.read_data(tmp_path)


@pytest.mark.parametrize("suffix", [".pbm", ".pnm", ".jfif", ".apng"])
def test_other_endings_of_known_formats_are_read(tmp_path: Path, suffix: str) -> None:
    Image.fromarray(COLOUR).save(tmp_path / f"a{suffix}", format="PNG")
    np.testing.assert_array_equal(dpstride.read_data(tmp_path)[0], np.moveaxis(COLOUR, -1, 0))


def test_a_link_that_leads_nowhere_is_not_left_out_of_a_folder(tmp_path: Path) -> None:
    Image.fromarray(COLOUR).save(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to(tmp_path / "gone.png")
    with pytest.raises(UnreadableFileError, match=r"b\.png"):
        dpstride.read_data(tmp_path)


def test_grey_and_colour_make_colour(tmp_path: Path) -> None:
    written(png(alpha(GREY, 255), 4))(tmp_path / "a.png")
    written(png(COLOUR, 2))(tmp_path / "b.png")
    images = dpstride.read_data(tmp_path).numpy()
    np.testing.assert_array_equal(images[0], np.stack([GREY] * 3))
    np.testing.assert_array_equal(images[1], np.moveaxis(COLOUR, -1, 0))
