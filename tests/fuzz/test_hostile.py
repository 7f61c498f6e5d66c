"""Documents, archives, folders, images and names made to harm."""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import dpstride
from dpstride.reading.documents import read_json
from dpstride.reading.hints import hint
from dpstride.reading.limits import UnreadableFileError
from dpstride.reading.text import one_line, printable, printable_lines

pytestmark = pytest.mark.attack("files that take memory, time or other files")


# --- JSON --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("[" * 100_000, "nested deeper than 64"),
        ("[" * 65 + "]" * 65, "nested deeper than 64"),
        ('{"a": 1, "b": 2, "a": 3}', "the name 'a' occurs twice"),
        ("[NaN]", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ("[1e999]", "too large for a float"),
        ("[1" + "0" * 100 + "]", "a whole number of 333 bits"),
        ("[1" + "0" * 5000 + "]", "not a whole JSON file"),
        ('"\\ud800', "not a whole JSON file"),
        ("", "not a whole JSON file"),
    ],
)
def test_json_that_no_reader_should_meet(tmp_path: Path, text: str, match: str) -> None:
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(UnreadableFileError, match=rf"a\.json: .*{match}"):
        read_json(tmp_path / "a.json")
    with pytest.raises(dpstride.ScheduleFileError, match=rf"a\.json: .*{match}"):
        dpstride.ScheduleSet.load(tmp_path / "a.json")


def test_a_name_that_comes_twice_among_many_is_found_at_once(tmp_path: Path) -> None:
    """Looking for it name by name would take as many comparisons as the square of their number: hours."""
    names = ", ".join(f'"{i}": 0' for i in range(300_000))
    (tmp_path / "a.json").write_text(f'{{{names}, "299999": 1}}')
    with pytest.raises(UnreadableFileError, match="the name '299999' occurs twice"):
        read_json(tmp_path / "a.json")


def test_a_file_without_end_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpstride.reading.documents.MOST_BYTES", 2**20)
    with pytest.raises(UnreadableFileError, match=r"/dev/zero: .*it has more than 1,048,576 bytes"):
        read_json("/dev/zero")
    with pytest.raises(ValueError, match="neither a file nor a folder"):
        dpstride.read_data("/dev/zero")


# --- names and places --------------------------------------------------------------------------------------------------


def test_names_in_archives_are_never_paths(tmp_path: Path) -> None:
    before = set(tmp_path.rglob("*"))
    buffer = io.BytesIO()
    np.save(buffer, np.zeros((2, 1, 3, 3), np.uint8))
    (tmp_path / "in").mkdir()
    with zipfile.ZipFile(tmp_path / "in" / "a.npz", "w") as archive:
        for name in ("images.npy", "../evil.npy", f"{tmp_path}/absolute.npy"):
            archive.writestr(name, buffer.getvalue())
    images, others = dpstride.read_data(tmp_path / "in" / "a.npz")
    assert images.shape == (2, 1, 3, 3)
    assert sorted(others) == ["../evil", f"{tmp_path}/absolute"]
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "in", tmp_path / "in" / "a.npz"}


def test_two_members_of_one_name_are_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("images.npy", b"")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("images.npy", b"")
    with pytest.raises(UnreadableFileError, match=r"holds 'images\.npy' twice"):
        dpstride.read_data(tmp_path / "a.npz")


def test_links_of_a_folder_of_images(tmp_path: Path) -> None:
    """A link to an image is an image; circles of folders and pipes are passed by, links to nowhere and to devices refused."""
    Image.new("L", (3, 3)).save(tmp_path / "one.png")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.png").symlink_to(tmp_path / "one.png")
    (folder / "round").symlink_to(folder)
    os.mkfifo(folder / "pipe.png")
    assert dpstride.read_data(folder).shape == (1, 1, 3, 3)
    for name, goal in (
        ("nowhere.png", tmp_path / "missing"),
        ("circle.png", folder / "circle.png"),
        ("device.png", "/dev/zero"),
    ):
        (folder / name).symlink_to(goal)
        with pytest.raises(UnreadableFileError, match=name):
            dpstride.read_data(folder)
        (folder / name).unlink()


def test_an_image_that_would_run_another_program_is_refused(tmp_path: Path) -> None:
    """Pillow looks at the content, not at the name, and hands PostScript to an interpreter."""
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(ran) print showpage\n%%EOF\n")
    with Image.open(tmp_path / "a.png") as image:
        assert image.format == "EPS"
    with pytest.raises(UnreadableFileError, match=r"a\.png: not a readable image"):
        dpstride.read_data(tmp_path)


def test_deep_images_are_refused_not_cut_off(tmp_path: Path) -> None:
    Image.fromarray(np.full((3, 3), 40_000, np.uint16)).save(tmp_path / "a.png")
    with pytest.raises(UnreadableFileError, match=r"a\.png: not an 8-bit image \(16 bits per channel\)"):
        dpstride.read_data(tmp_path)


# --- text that is shown ------------------------------------------------------------------------------------------------

HOSTILE = "\x1b[2J\x1b]0;owned\x07 $\\frac{$ </title>--><script>alert(1)</script> \u202egnp\r\n" + "x" * 10_000


def test_text_is_shown_on_one_line_without_control_characters() -> None:
    shown = printable(HOSTILE)
    assert shown.isprintable()
    assert len(shown) < 300
    assert shown.startswith(r"\x1b[2J\x1b]0;owned\x07 $\frac{$")
    assert r"\u202egnp\r\n" in shown
    assert printable("Größe 4 × 4 ✓") == "Größe 4 × 4 ✓"
    assert printable_lines("one\ntwo\x1b[1m") == "one\ntwo\\x1b[1m"


# Default_Ignorable_Code_Point of Unicode 15 (DerivedCoreProperties.txt): what a screen leaves out.
IGNORABLE = [
    *((0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x200B, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF)),
    *((0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3), (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF)),
]
SPACES = [0x9, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000]
CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0xFFF9, 0xFFFA, 0xFFFB, 0xD800, 0xDFFF]
EMPTY = [0x2800, 0x16FE4, 0x1D159]  # signs without a picture


def test_a_near_name_is_looked_for_among_a_thousand_short_ones() -> None:
    """Comparing takes as long as the names are, squared; a folder may hold a million."""
    taken: list[int] = []

    def names(length: int) -> Iterator[str]:
        for i in range(100_000):
            taken.append(i)
            yield str(i).rjust(length, "x")

    assert hint("x" * 30, names(30)).startswith(" Did you mean x")
    assert len(taken) <= 1000
    assert hint("x" * 10_000, names(10_000)) == ""
    assert hint("x" * 100, ["y" * 10_000, "x" * 99]) == f" Did you mean {'x' * 99}?"


def test_no_character_is_shown_as_nothing() -> None:
    ignorable = [code for first, last in IGNORABLE for code in range(first, last + 1)]
    for code in (*ignorable, *SPACES, *CONTROLS, *EMPTY):
        shown = printable(f"a{chr(code)}b")
        assert shown.isascii(), hex(code)
        assert shown.isprintable(), hex(code)
        assert shown not in ("ab", f"a{chr(code)}b"), hex(code)
        assert one_line(chr(code)) == shown[1:-1]
    for text in ("naïve Größe 4 × 4 ✓", "x̂₀", "日本語", "한글", "ไทย", "मॉडल", "🙂", "a b"):
        assert printable(text) == text == one_line(text)
    assert one_line("a\nb" * 1000) == "a\\nb" * 1000


def test_a_hostile_name_of_a_model_is_drawn_as_text(tmp_path: Path) -> None:
    from xml.etree import ElementTree

    from dpstride.evaluate.comparison import Comparison, compare
    from dpstride.report.figures import save_figures

    denoiser = dpstride.Denoiser(lambda x, time: 0.1 * x, dpstride.ForwardProcess.linear(6), name=HOSTILE)
    images = torch.randint(0, 256, (4, 1, 2, 2), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    schedules = dpstride.optimise(denoiser, images, progress=False)
    compare(schedules, dpstride.estimate(denoiser, images, seed=1, progress=False)).save(tmp_path / "comparison.json")
    comparison = Comparison.load(tmp_path / "comparison.json")
    assert comparison.model["name"] == HOSTILE
    for path in save_figures(comparison, schedules, tmp_path):
        if path.suffix == ".svg":
            ElementTree.parse(path)  # well-formed: the name has not left its place
            assert "<script" not in path.read_text()
