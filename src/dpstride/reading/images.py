"""Stage 0. Image files as arrays of 8 bits: known formats only, and a bounded number of pixels.

Pillow guesses the format from the content, whatever the name, and some formats run other programs (EPS) or expand without
bound, so the formats are listed and the size is checked before a pixel is decoded. Pillow also silently cuts 16 bits to 8,
takes the first of several frames and drops transparency: `image_rules` refuses images that would be changed in this way.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .held import HeldFile
from .image_rules import ImageFile, check_header, check_opaque, check_pixels, is_grey, orientation
from .limits import UnreadableFileError
from .text import first_line

SUFFIXES = {
    *(".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".dib", ".gif", ".tif", ".tiff", ".webp"),
    *(".pbm", ".pgm", ".ppm", ".pnm"),
}
# Images that cannot be read: in a folder of images they are refused by name, not skipped.
OTHER_SUFFIXES = {".pam", ".pfm", ".jp2", ".j2k", ".jxl", ".avif", ".heic", ".heif", ".tga", ".exr", ".ico", ".eps"}
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
MOST_PIXELS = 2**26  # 8192 × 8192
# EXIF orientation written by a camera → Pillow's name of the transpose that turns the image upright.
TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}


def measure_image(path: str | os.PathLike[str] | HeldFile) -> tuple[int, int, int]:
    """Return the height, width and channels (1 or 3) that `read_image` would give, from the image's header."""
    path = path if isinstance(path, HeldFile) else Path(path)
    with _opened(path) as image:
        return _measure(path, image)


def read_image(path: str | os.PathLike[str] | HeldFile) -> npt.NDArray[np.uint8]:
    """Read one image, upright: [H, W] if it is grey, else [H, W, 3]."""
    from PIL import Image

    path = path if isinstance(path, HeldFile) else Path(path)
    with _opened(path) as image:
        height, width, channels = _measure(path, image)
        turned = orientation(path, image)
        colours = len(image.getpalette("RGB") or ()) // 3
        image.load()
        check_pixels(path, image, colours)
        if turned in TURNS and image.format != "TIFF":  # Pillow turns TIFF by itself
            image = image.transpose(Image.Transpose[TURNS[turned]])
        check_opaque(path, image)
        pixels = np.array(image.convert("L" if channels == 1 else "RGB"), dtype=np.uint8)
    if pixels.shape[:2] != (height, width):
        raise UnreadableFileError(f"{path}: not a readable image, its size changes as it is decoded. Save it again.")
    return pixels


def stack_images(images: list[npt.NDArray[np.uint8]]) -> npt.NDArray[np.uint8]:
    """Stack images of one size to [N, C, H, W]: 1 channel if all are grey, else 3."""
    if all(image.ndim == 2 for image in images):
        return np.stack(images)[:, None]
    colour = [np.broadcast_to(image[..., None], (*image.shape, 3)) if image.ndim == 2 else image for image in images]
    return np.ascontiguousarray(np.moveaxis(np.stack(colour), -1, 1))


def _measure(path: ImageFile, image: Any) -> tuple[int, int, int]:
    width, height = (image.tag_v2[256], image.tag_v2[257]) if image.format == "TIFF" else image.size
    if orientation(path, image) >= 5:
        width, height = height, width
    return int(height), int(width), 1 if is_grey(image) else 3


@contextmanager
def _opened(path: ImageFile) -> Iterator[Any]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of damage that it can decode, and raises otherwise
            content = path.open() if isinstance(path, HeldFile) else path
            with Image.open(content, formats=FORMATS) as image:
                _check_size(path, image)
                check_header(path, image)
                yield image
    except UnreadableFileError:
        raise
    except Exception as error:  # decoders of damaged files raise anything: struct.error, KeyError, SyntaxError …
        raise UnreadableFileError(
            f"{path}: not a readable image ({first_line(error)}). Remove or repair it."
        ) from error


def _check_size(path: ImageFile, image: Any) -> None:
    width, height = image.size
    if width < 1 or height < 1 or width * height > MOST_PIXELS:
        raise UnreadableFileError(
            f"{path}: not a readable image: {width} × {height} pixels, and at most {MOST_PIXELS:,} are read. Crop or resize it."
        )
