"""Data from files: the same images through every format, and what is refused."""

import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file

from dpstride.statistics.files import read_data

COLOUR = np.random.default_rng(0).integers(
    0, 256, (5, 6, 7, 3), dtype=np.uint8
)  # channels last, as image tools have it
FIRST = np.moveaxis(COLOUR, -1, 1)


def test_every_format_gives_the_same_images(tmp_path):
    np.save(tmp_path / "a.npy", COLOUR)
    np.savez(tmp_path / "b.npz", COLOUR)
    torch.save(torch.from_numpy(COLOUR), tmp_path / "c.pt")
    save_file({"anything": COLOUR}, tmp_path / "d.safetensors")
    (tmp_path / "e" / "below").mkdir(parents=True)
    for i, image in enumerate(COLOUR):
        Image.fromarray(image).save(tmp_path / "e" / ("below" if i > 2 else ".") / f"{i}.png")
    (tmp_path / "e" / "notes.txt").write_text("not an image")
    for name in ("a.npy", "b.npz", "c.pt", "d.safetensors"):
        np.testing.assert_array_equal(np.asarray(read_data(tmp_path / name)), FIRST)
    # A folder is read in the order of its paths: 0, 1, 2, then those below.
    np.testing.assert_array_equal(read_data(tmp_path / "e").numpy(), FIRST)


def test_channels_first_stays_and_grey_images_get_a_channel(tmp_path):
    np.save(tmp_path / "a.npy", FIRST)
    np.testing.assert_array_equal(read_data(tmp_path / "a.npy"), FIRST)
    np.save(tmp_path / "grey.npy", COLOUR[..., 0])
    assert read_data(tmp_path / "grey.npy").shape == (5, 1, 6, 7)
    Image.fromarray(COLOUR[0, :, :, 0]).save(tmp_path / "0.png")
    assert read_data(tmp_path).shape == (1, 1, 6, 7)


def test_other_arrays_are_conditioning_by_name(tmp_path):
    labels = np.arange(5)
    np.savez(tmp_path / "a.npz", images=FIRST, class_labels=labels)
    torch.save({"x": torch.from_numpy(FIRST), "class_labels": torch.from_numpy(labels)}, tmp_path / "b.pt")
    for name in ("a.npz", "b.pt"):
        x, conditioning = read_data(tmp_path / name)
        np.testing.assert_array_equal(np.asarray(x), FIRST)
        np.testing.assert_array_equal(np.asarray(conditioning["class_labels"]), labels)


def test_a_function_of_the_users_own(tmp_path, monkeypatch):
    (tmp_path / "my_data.py").write_text("import torch\ndef images():\n    return torch.zeros(2, 1, 3, 3)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert read_data("my_data:images").shape == (2, 1, 3, 3)


def test_a_function_is_named_by_words_and_found_behind_installed_packages(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(tmp_path))])
    (tmp_path / "images.py").write_text("raise SystemExit('it ran')")
    for text in ("images:../x.npy", "images.npy:", ":x", "images/:x", "http://images", "images:a b", ".images:x"):
        with pytest.raises(ValueError, match=r"must be package\.module:function"):
            read_data(text)
    (tmp_path / "email_of_mine.py").write_text("def images():\n    return 1\n")
    assert read_data("email_of_mine:images") == 1
    assert sys.path[-1] == str(tmp_path)


class Malicious:
    def __reduce__(self):
        return (open, ("ran.txt", "w"))


@pytest.mark.parametrize("name", ["a.npy", "a.npz", "a.pt"])
def test_a_pickle_is_refused_and_does_not_run(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    hostile = np.array([Malicious()], dtype=object)
    {"a.npy": lambda: np.save(name, hostile), "a.npz": lambda: np.savez(name, hostile),
     "a.pt": lambda: torch.save(Malicious(), name)}[name]()  # fmt: skip
    with pytest.raises(ValueError, match=r"plain|Pickled|pickle"):
        read_data(name)
    assert not (tmp_path / "ran.txt").exists()


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda p: (p / "a.npy").write_bytes(b"\x93NUMPY\x01\x00"), "not a readable numpy file"),
        (lambda p: (p / "a.npz").write_bytes(b"PK\x03\x04 cut"), "not a whole zip archive"),
        (lambda p: (p / "a.pt").write_bytes(b"cut"), "not a plain checkpoint"),
        (lambda p: (p / "a.safetensors").write_bytes(b"\x08\x00\x00"), "not a whole safetensors file"),
        (lambda p: (p / "a.txt").write_text("x"), "ending '.txt'"),
        (lambda p: (p / "folder").mkdir(), "no image found"),
        (lambda p: np.savez(p / "a.npz", a=COLOUR, b=COLOUR), "none is named images.*or 'x' if they are not images"),
        (lambda p: torch.save([1, 2], p / "a.pt"), "not a tensor"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path, make, match):
    make(tmp_path)
    (path,) = tmp_path.iterdir()
    with pytest.raises(ValueError, match=match) as error:
        read_data(path)
    assert str(path) in str(error.value)


def test_images_of_different_sizes_and_broken_images(tmp_path):
    Image.new("RGB", (3, 3)).save(tmp_path / "a.png")
    Image.new("RGB", (3, 4)).save(tmp_path / "b.png")
    with pytest.raises(ValueError, match=r"one size.*a\.png is 3 × 3.*b\.png is 3 × 4"):
        read_data(tmp_path)
    (tmp_path / "b.png").write_bytes((tmp_path / "b.png").read_bytes()[:30])
    with pytest.raises(ValueError, match=r"b\.png: not a readable image"):
        read_data(tmp_path)


@pytest.mark.parametrize(("ending", "between"), [("csv", ","), ("tsv", r"\t")])
def test_a_table_of_text_is_answered_with_what_reads_it(ending, between, tmp_path):
    (tmp_path / f"rows.{ending}").write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(ValueError, match=r"text tables are not read\. Save the numbers as an array") as refusal:
        read_data(tmp_path / f"rows.{ending}")
    assert f"np.save('rows.npy', np.loadtxt('rows.{ending}', delimiter='{between}', skiprows=1))" in str(refusal.value)
