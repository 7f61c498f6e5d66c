"""Stage 0. Image files as arrays of 8 bits: known formats only, and no more pixels than the file can honestly hold.

Pillow guesses the format from the content, whatever the name says, and some formats run other programs (EPS) or expand
without bound, so the formats are listed and the size is checked before a pixel is decoded.
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

from .limits import UnreadableFileError

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm"}
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TIFF", "WEBP", "PPM")
GREY = ("1", "L")
DEEP = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")
MOST_PIXELS = 2**26  # 8192 × 8192


def measure_image(path: str | os.PathLike[str]) -> tuple[int, int, int]:
    """Height, width and channels (1 or 3) of an image, from its header."""
    with _opened(Path(path)) as image:
        return image.size[1], image.size[0], 1 if image.mode in GREY else 3


def read_image(path: str | os.PathLike[str]) -> npt.NDArray[np.uint8]:
    """One image: [H, W] where it is grey, else [H, W, 3]; transparency is dropped."""
    with _opened(Path(path)) as image:
        return np.array(image.convert("L" if image.mode in GREY else "RGB"), dtype=np.uint8)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of damage and goes on; what it cannot decode it raises
            with Image.open(path, formats=FORMATS) as image:
                _check(path, image)
                yield image
    except UnreadableFileError:
        raise
    except (
        Exception
    ) as error:  # decoders raise whatever the damage makes of them: struct.error, KeyError, SyntaxError …
        line = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise UnreadableFileError(f"{path}: not a readable image ({line}). Remove or repair it.") from error


def _check(path: Path, image: Any) -> None:
    width, height = image.size
    if width < 1 or height < 1 or width * height > MOST_PIXELS:
        raise UnreadableFileError(
            f"{path}: not a readable image of {width} × {height} pixels; the most is {MOST_PIXELS:,}. Crop or resize it."
        )
    if image.mode in DEEP:
        raise UnreadableFileError(
            f"{path}: not an 8-bit image (mode {image.mode}); its values would be cut off. Convert it to 8 bits, or save the "
            "values as .npy."
        )
