"""Stage 0. Rules for image files that become 8-bit grey or colour unchanged; each refusal names the reason.

Pillow reports the mode that it decodes to, not what the file holds (16-bit colour becomes 8-bit RGB), so depths are read from
the file itself: PNG's IHDR, TIFF's tags, the largest value of a PPM.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .held import HeldFile
from .limits import UnreadableFileError

ImageFile = Path | HeldFile
GREY, PALETTE, COLOUR = ("1", "L", "LA"), ("P", "PA"), ("RGB", "RGBA")
ALPHA = ("LA", "PA", "RGBA")
DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
MOST_CHUNKS = 100_000  # in a PNG
ORIENTATION = 0x0112  # EXIF's tag
# PNG chunks that may hold an orientation: EXIF itself, and text with EXIF or XMP in it.
TELLING = {b"eXIf", b"tEXt", b"zTXt", b"iTXt"}
BITS_PER_SAMPLE, SAMPLES_PER_PIXEL, PLANAR, COLOR_MAP, SAMPLE_FORMAT = 258, 277, 284, 320, 339  # TIFF's tags
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a PNG by its colour type
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
STEP = 2**20  # bytes unpacked at a time
SCAN = 0xDA  # JPEG's marker before pixels; those below have no length field
BARE = {0x01, 0xD8, 0xD9, *range(0xD0, 0xD8)}
MARKER = re.compile(rb"\xff+([^\x00\xff])")
RESTARTS = b"\xd0\xd1\xd2\xd3\xd4\xd5\xd6\xd7"
ARITHMETIC = {0xC9, 0xCA}  # arithmetic coding, where a whole file may omit its last bytes
MORE = bytes.fromhex("5a3c96e1784bd22d8769f01e") * 4
NUMBER = rb"(?:\s|#[^\r\n]*[\r\n])+(\d{1,10})"  # of a PPM's header, after spaces and comments


def check_header(path: ImageFile, image: Any) -> None:
    """Refuse an open image with more than 8 bits, with several frames, or with colours that depend on a profile."""
    if (bits := _bits(path, image)) is not None:
        raise UnreadableFileError(
            f"{path}: not an 8-bit image ({bits}); its values would be cut off. Convert it to 8 bits, or save the "
            "values as .npy."
        )
    if getattr(image, "is_animated", False) or (image.format == "PPM" and _goes_on(path, image)):
        raise UnreadableFileError(
            f"{path}: holds several frames or pages, and only one would be read. Save each as a separate file."
        )
    if image.format == "TIFF" and _lacks_strips(image):
        raise UnreadableFileError(
            f"{path}: not a readable image, some of its pixels are not in the file and would be black. Remove or repair it."
        )
    if image.format == "TIFF" and (samples := int(image.tag_v2.get(SAMPLES_PER_PIXEL, 1))) > (
        bands := sum(band != "X" for band in image.getbands())  # X is padding
    ):
        raise UnreadableFileError(
            f"{path}: has {samples} channels, but only {bands} would be read. Remove the other channels, or save the values "
            "as .npy."
        )
    if image.format == "GIF" and tuple(image.tile[0][1]) != (0, 0, *image.size):
        raise UnreadableFileError(
            f"{path}: its frame covers only a part of the image; the rest is undefined. Crop it, or add a background."
        )
    if image.mode not in (*GREY, *PALETTE, *COLOUR):
        raise UnreadableFileError(
            f"{path}: its colours are {image.mode}, whose conversion to RGB depends on a profile. Convert it to RGB or grey."
        )


def check_pixels(path: ImageFile, image: Any, colours: int) -> None:
    """Refuse a decoded image with pixels missing from the file, or outside its palette of ``colours``."""
    if image.format == "PNG" and _lacks_rows(path):
        raise UnreadableFileError(f"{path}: not a readable image, its last rows are missing. Remove or repair it.")
    if image.format == "JPEG" and _wants_more(path, image):
        raise UnreadableFileError(
            f"{path}: not a readable image, some of its pixels are not in the file and would be grey. Remove or repair it."
        )
    if image.mode in PALETTE and image.getchannel(0).getextrema()[1] >= colours:
        raise UnreadableFileError(
            f"{path}: not a readable image, its pixels have colours beyond its palette of {colours}. Remove or repair it."
        )
    if image.format == "PPM":
        magic, largest, start = _ppm(path)
        if magic in (b"P5", b"P6") and largest < 255:
            with path.open("rb") as file:
                file.seek(start)
                found = max(file.read(len(image.getbands()) * image.width * image.height), default=0)
            if found > largest:
                raise UnreadableFileError(
                    f"{path}: not a readable image, it holds {found}, but declares {largest} as its largest value. "
                    "Remove or repair it."
                )


def check_opaque(path: ImageFile, image: Any) -> None:
    """Refuse a decoded image with transparent pixels, whose colour depends on the background."""
    if image.mode not in ALPHA and "transparency" not in image.info:
        return
    if image.format == "PNG" and image.mode in ("1", "L") and (depth := _depth(path)) < 8:
        # Pillow does not scale the transparent grey to 8 bits; newer versions have scaled a 1 of one bit to 255.
        image.info["transparency"] = min(image.info["transparency"] * (255 // (2**depth - 1)), 255)
    if image.convert("RGBA").getchannel("A").getextrema()[0] < 255:
        raise UnreadableFileError(
            f"{path}: has transparent pixels, whose colour is undefined. Add a background and save it without transparency."
        )


def is_grey(image: Any) -> bool:
    """Return whether an open image is grey, by its mode or because its palette has no other colour."""
    if image.mode not in PALETTE:
        return image.mode in GREY
    red, green, blue = np.reshape(image.getpalette("RGB"), (-1, 3)).T
    return bool(((red == green) & (green == blue)).all())


def orientation(path: ImageFile, image: Any) -> int:
    """Return the EXIF orientation of an open image; 1 if it is upright or has none."""
    if image.format == "PNG" and not any(name in TELLING for name, *_ in _chunks(path)):
        return 1  # Pillow would decode the whole image to look for EXIF after the pixels
    turned = image.getexif().get(ORIENTATION, 1)
    return turned if isinstance(turned, int) and 1 <= turned <= 8 else 1


def _bits(path: ImageFile, image: Any) -> str | None:
    """Return what makes an image deeper than 8 bits, in words; None if nothing does."""
    if image.format == "PNG":
        names = [name for name, *_ in _chunks(path)]
        if names[:1] != [b"IHDR"] or names.count(b"IHDR") > 1:
            raise UnreadableFileError(
                f"{path}: not a readable image, its header is not its first chunk. Save it again."
            )
        return f"{depth} bits per channel" if (depth := _depth(path)) > 8 else None
    if image.format == "TIFF":
        depths, formats = (np.ravel(image.tag_v2.get(tag, 1)) for tag in (BITS_PER_SAMPLE, SAMPLE_FORMAT))
        if depths.max() > 8:
            return f"{depths.max()} bits per channel"
        if (formats != 1).any():
            return "signed or floating-point values"
        high, low = np.divmod(np.ravel(image.tag_v2.get(COLOR_MAP, 0)), 256)
        if ((low != 0) & (low != high)).any():  # 8 bits are written as 256 v or 257 v
            return "a palette of 16 bits per channel"
    if image.format == "PPM" and image.mode != "F" and (largest := _ppm(path)[1]) > 255:
        return f"values up to {largest}"
    return f"mode {image.mode}" if image.mode in DEEP else None


def _lacks_strips(image: Any) -> bool:
    """Return whether the strips or tiles of a TIFF (of each colour plane) do not cover the image; Pillow fills in 0."""
    tags = image.tag_v2
    width, height = int(tags[256]), int(tags[257])
    if any(tile[0] != "raw" for tile in image.tile):  # libtiff checks by itself
        return False
    boxes = [tile[1] for tile in image.tile]
    covered = sum((min(right, width) - left) * (min(low, height) - top) for left, top, right, low in boxes)
    planes = int(tags.get(SAMPLES_PER_PIXEL, 1)) if tags.get(PLANAR, 1) == 2 else 1
    return bool(covered < width * height * planes)


def _ppm(path: ImageFile) -> tuple[bytes, int, int]:
    """Return a PPM's magic number, its largest value, and the offset of its pixels."""
    with path.open("rb") as file:
        head = file.read(2**16)
    magic = head[:2]
    bitmap = magic in (b"P1", b"P4")
    header = re.match(rb"P[1-6]" + (2 if bitmap else 3) * NUMBER + rb"\s", head)
    if header is None:
        raise UnreadableFileError(f"{path}: not a readable image, its PPM header is damaged. Remove or repair it.")
    return magic, 1 if bitmap else int(header[3]), header.end()


def _goes_on(path: ImageFile, image: Any) -> bool:
    """Return whether a binary PPM has a second image after the first."""
    (magic, _, start), (width, height) = _ppm(path), image.size
    row = {b"P4": (width + 7) // 8, b"P5": width, b"P6": 3 * width}.get(magic)
    return row is not None and path.stat().st_size >= start + row * height + 3


def _depth(path: ImageFile) -> int:
    """Return the bits per channel of a PNG."""
    with path.open("rb") as file:
        return file.read(25)[-1]


def _lacks_rows(path: ImageFile) -> bool:
    """Return whether a PNG unpacks to fewer bytes than its rows have; Pillow leaves missing rows black."""
    with path.open("rb") as file:
        width, height, depth, kind, interlaced = struct.unpack(">IIBB2xB", file.read(29)[16:])
        sizes = [(-((x - width) // right), -((y - height) // down)) for x, y, right, down in ADAM7]
        left = sum(
            rows * (1 + (columns * depth * CHANNELS[kind] + 7) // 8)
            for columns, rows in (sizes if interlaced else [(width, height)])
            if columns > 0
        )
        unpacker = zlib.decompressobj()
        for name, start, length in _chunks(path):
            if name == b"IDAT":
                file.seek(start)
                packed, count = file.read(length), STEP
                while count == STEP:
                    count = len(unpacker.decompress(packed, STEP))
                    packed, left = unpacker.unconsumed_tail, left - count
    return bool(left > 0)


def _wants_more(path: ImageFile, image: Any) -> bool:
    """Return whether a JPEG changes with more data appended: a decoder without data continues with grey."""
    from PIL import Image

    with path.open("rb") as file:
        longer = _longer(file.read())
    if longer is None:
        return False
    with Image.open(io.BytesIO(longer), formats=("JPEG",)) as other:
        return bool(other.tobytes() != image.tobytes())


def _longer(content: bytes) -> bytes | None:
    """Return a JPEG with more data before each marker that ends data; None if that may change an intact JPEG."""
    parts, kept, at = [], 0, 0
    while (marker := MARKER.search(content, at)) is not None:
        at, kind = marker.end(), marker[1][0]
        if kind in ARITHMETIC:
            return None
        if kind not in BARE:
            at += int.from_bytes(content[at : at + 2])
        if kind == SCAN:
            for ending in MARKER.finditer(content, at):
                parts += [content[kept : ending.start()], MORE]
                kept = at = ending.start()
                if ending[1] not in RESTARTS:
                    break
    return b"".join([*parts, content[kept:]])


def _chunks(path: ImageFile) -> Iterator[tuple[bytes, int, int]]:
    """Yield names, offsets and lengths of a PNG's chunks, up to the first truncated one."""
    with path.open("rb") as file:
        file.seek(8)
        for _ in range(MOST_CHUNKS):
            if len(head := file.read(8)) < 8:
                return
            length, name = struct.unpack(">I4s", head)
            yield name, file.tell(), length
            file.seek(length + 4, 1)
    raise UnreadableFileError(f"{path}: not a readable image, it has more than {MOST_CHUNKS:,} chunks. Save it again.")
