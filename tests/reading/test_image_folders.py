"""Images turned as their cameras say, and folders of images, of which none is left out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import COLOUR, GREY, alpha, png, written
from PIL import Image

import dpstride
from dpstride.reading.image_rules import ORIENTATION
from dpstride.reading.images import measure_image, read_image
from dpstride.reading.limits import UnreadableFileError

pytestmark = pytest.mark.attack("images that would lose something")

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
