"""Sample grids for the page, as PNG data URLs: from the streams of a study, or from the PNG files of a demo."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...options import BEST, COMPARED_STRIDES
from ...reading.images import read_image
from ...reading.limits import UnreadableFileError
from ...study.results import StudyResults
from ..study_figures import sample_rows
from ..text import NAMES

LARGEST = 96  # pixels of one image's side; larger ones are shrunk
WIDEST = 480  # pixels of a grid's side, if there are many grids
MOST_BYTES = 2_000_000  # of one PNG file
SIGNATURE = b"\x89PNG\r\n\x1a\n"
FILE = re.compile(r"samples_(\d+)_steps(?:_(even|quadratic|dp))?\.png")


def sample_groups(folder: Path, study: StudyResults | None) -> list[dict[str, Any]]:
    """Pictures by budget: ``{"title", "layout": "rows" | "grids", "pictures": [{"label", "png", "width", "height"}]}``."""
    return _grids(folder) if study is None else _rows(study, folder / "features")


def _rows(study: StudyResults, features: Path) -> list[dict[str, Any]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for name, images in sample_rows(study, features):
        title, _, stride = name.partition(", ")
        groups.setdefault(title, []).append(_strip(f"{stride} stride" if stride else title, images))
    for pictures in groups.values():  # the DP stride first, as everywhere on the page
        pictures.sort(key=lambda picture: not picture["label"].startswith("DP"))
    return [{"title": title, "layout": "rows", "pictures": pictures} for title, pictures in groups.items()]


def _strip(label: str, images: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """A row of images with a transparent gap between them."""
    from PIL import Image

    n, _, height, width = images.shape
    gap = max(1, width // 14)
    strip = Image.new("RGBA", (n * (width + gap) - gap, height))
    for i, image in enumerate(images):
        levels = np.moveaxis(image, 0, -1)
        strip.paste(Image.fromarray(levels[..., 0] if levels.shape[-1] == 1 else levels), (i * (width + gap), 0))
    if max(height, width) > LARGEST:
        scale = LARGEST / max(height, width)
        strip = strip.resize((round(strip.width * scale), round(strip.height * scale)))
    file = io.BytesIO()
    strip.save(file, "PNG", optimize=True)
    return _picture(label, file.getvalue())


def _grids(folder: Path) -> list[dict[str, Any]]:
    order: Sequence[str] = (BEST, *COMPARED_STRIDES)
    found: dict[int, dict[str, bytes]] = {}
    for path in sorted(folder.glob("samples_*_steps*.png")):
        match = FILE.fullmatch(path.name)
        if match and (content := _png(path)) is not None:
            found.setdefault(int(match[1]), {})[match[2] or BEST] = content
    return [
        {
            "title": f"{K} steps",
            "layout": "grids",
            "pictures": [_picture(NAMES[stride], files[stride]) for stride in order if stride in files],
        }
        for K, files in sorted(found.items())
    ]


def grid_picture(path: Path, label: str) -> dict[str, Any] | None:
    """A grid of samples from a folder, shrunk if it is large; None if it does not exist."""
    from PIL import Image

    if not path.is_file():
        return None
    content = _png(path)
    if content is None or max(_size(content)) > WIDEST:
        try:
            image = Image.fromarray(read_image(path))
        except UnreadableFileError:
            return None
        image.thumbnail((WIDEST, WIDEST))
        file = io.BytesIO()
        image.save(file, "PNG", optimize=True)
        content = file.getvalue()
    return _picture(label, content)


def _png(path: Path) -> bytes | None:
    """The content of a PNG file, if it is small enough to embed."""
    if path.stat().st_size > MOST_BYTES or not (content := path.read_bytes()).startswith(SIGNATURE):
        return None
    return content


def _size(png: bytes) -> tuple[int, int]:
    width, height = (int.from_bytes(png[at : at + 4], "big") for at in (16, 20))  # the PNG's first chunk
    return width, height


def _picture(label: str, png: bytes) -> dict[str, Any]:
    width, height = _size(png)
    url = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
    return {"label": label, "png": url, "width": width, "height": height}
