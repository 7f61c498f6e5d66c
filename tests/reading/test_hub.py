"""Data sets of the Hugging Face hub, from local copies that `datasets` itself wrote: the same values as from other files."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pytest
import torch
from click.testing import CliRunner
from PIL import Image

import dpstride
from dpstride.cli import cli
from dpstride.finding.inputs import Asked, split
from dpstride.integrations.loaded import LoadedModel
from dpstride.reading.hub import read_hub
from dpstride.reading.hub_source import HubSource, first_of
from dpstride.statistics.data import Samples
from dpstride.training.images import read_images

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, (12, 6, 8, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 3, 12)
SIGNALS = RNG.normal(size=(12, 5))
COUNTS = RNG.integers(0, 256, (12, 4, 4), dtype=np.uint8)
FEATURES = datasets.Features(
    {
        "image": datasets.Image(),
        "label": datasets.ClassLabel(names=["cat", "dog", "eel"]),
        "number": datasets.Value("int64"),
        "signal": datasets.Sequence(datasets.Value("float64")),
        "counts": datasets.Array2D((4, 4), "uint8"),
        "caption": datasets.Value("string"),
    }
)


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    datasets.disable_progress_bars()


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def rows(images: Any = COLOUR) -> list[dict[str, Any]]:
    return [
        {
            "image": {"bytes": image if isinstance(image, bytes) else png(image), "path": None},
            "label": int(LABELS[i]),
            "number": int(LABELS[i]),
            "signal": SIGNALS[i].tolist(),
            "counts": COUNTS[i].tolist(),
            "caption": f"a thing, number {i}",
        }
        for i, image in enumerate(images)
    ]


def write(
    folder: Path, found: list[dict[str, Any]], features: Any = FEATURES, names: tuple[str, ...] = ("train",)
) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        part = datasets.Dataset.from_dict({key: [row[key] for row in found] for key in features}, features=features)
        part.to_parquet(str(folder / f"{name}-00000-of-00001.parquet"))
    return f"hub:{folder}"


@pytest.fixture(scope="module")
def things(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("things"), rows())


# --- values ----------------------------------------------------------------------------------------------------------


def test_images_are_those_of_the_same_files_in_a_folder(things, tmp_path):
    for number, image in enumerate(COLOUR):
        Image.fromarray(image).save(tmp_path / f"{number:02}.png")
    assert torch.equal(dpstride.read_data(things), dpstride.read_data(tmp_path))
    images, labels = dpstride.read_data(things, labels=True)
    np.testing.assert_array_equal(images, np.moveaxis(COLOUR, -1, 1))
    np.testing.assert_array_equal(labels, LABELS)
    np.testing.assert_array_equal(dpstride.read_data(f"{things},labels=number", labels=True)[1], LABELS)


def test_columns_of_numbers_are_read_as_npy_files_are(things, tmp_path):
    for column, values in (("signal", SIGNALS), ("counts", COUNTS)):
        np.save(tmp_path / "same.npy", values)
        expected = dpstride.read_data(tmp_path / "same.npy")
        found = dpstride.read_data(f"{things},column={column}").numpy()
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


def test_texts_are_the_prompts_of_the_images(things):
    images, conditioning = dpstride.read_data(f"{things},prompts=caption,first=2")
    assert len(images) == 2
    assert conditioning == {"prompts": ["a thing, number 0", "a thing, number 1"]}


def test_images_beside_the_table_are_read_too_and_folders_of_classes_have_labels(tmp_path):
    for number, image in enumerate(COLOUR):
        (tmp_path / "train" / "abc"[LABELS[number]]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(tmp_path / "train" / "abc"[LABELS[number]] / f"{number:02}.png")
    images, labels = dpstride.read_data(f"hub:{tmp_path}", labels=True)
    expected, classes = dpstride.read_data(tmp_path / "train", labels=True)
    assert torch.equal(images, expected)
    assert torch.equal(labels, classes)


def test_grey_images_have_one_channel_and_three_beside_coloured_ones(tmp_path):
    assert dpstride.read_data(write(tmp_path / "grey", rows(COLOUR[..., 0]))).shape == (12, 1, 6, 8)
    mixed = dpstride.read_data(write(tmp_path / "mixed", rows([COLOUR[0], COLOUR[1, :, :, 0]])))
    np.testing.assert_array_equal(mixed[1], np.broadcast_to(COLOUR[1, :, :, 0], (3, 6, 8)))


def test_a_relative_folder_config_and_split_are_found(tmp_path, monkeypatch):
    write(tmp_path / "set" / "small", rows(COLOUR[:2]), names=("train", "test"))
    write(tmp_path / "set" / "large", rows(COLOUR[:5]), names=("train", "test"))
    config = "configs:\n"
    for name in ("small", "large"):
        files = "".join(f"  - split: {part}\n    path: {name}/{part}-*\n" for part in ("test", "train"))
        config += f"- config_name: {name}\n  data_files:\n{files}"
    (tmp_path / "set" / "README.md").write_text(f"---\n{config}---\n")
    monkeypatch.chdir(tmp_path)
    assert len(dpstride.read_data("hub:./set,config=large,split=test")) == 5
    with pytest.raises(
        ValueError, match=r"cannot be opened \(Config name is missing.*'small', 'large'.*Name one with config="
    ):
        dpstride.read_data("hub:./set,split=test")
    with pytest.raises(
        ValueError, match=r"'nope' not found. Available: \['small', 'large'\]\). Name one with config=NAME"
    ):
        dpstride.read_data("hub:./set,config=nope,split=test")
    with pytest.raises(ValueError, match="choose a split with split=NAME: test, train"):
        dpstride.read_data("hub:./set,config=small")
    with pytest.raises(ValueError, match=r"there is no split 'tset'. Did you mean test"):
        dpstride.read_data("hub:./set,config=small,split=tset")


# --- how many, and in which order ---------------------------------------------------------------------------------------


def test_no_more_than_the_first_examples_are_read(tmp_path):
    found = rows()
    found[4]["image"]["bytes"] = b"no image at all"
    name = write(tmp_path, found)
    np.testing.assert_array_equal(dpstride.read_data(f"{name},first=4"), np.moveaxis(COLOUR[:4], -1, 1))
    with pytest.raises(ValueError, match="example 4: not a readable image"):
        dpstride.read_data(f"{name},first=5")
    with pytest.raises(ValueError, match="example 4: not a readable image"):
        dpstride.read_data(name)


def test_samples_of_verbs_that_use_the_first_ones_are_all_that_is_read(things):
    assert first_of(things, 3) == f"{things},first=3"
    assert first_of(f"{things},first=9", 3) == f"{things},first=9"
    assert first_of("images/", 3) == "images/"


def test_a_stream_without_end_is_refused_rather_than_read_into_memory(things, monkeypatch):
    monkeypatch.setattr("dpstride.reading.hub.MOST_BYTES", COLOUR[:5].nbytes)
    with pytest.raises(ValueError, match=r"have more than 720 bytes. Read only the first ones with first=N"):
        dpstride.read_data(things)
    assert len(dpstride.read_data(f"{things},first=12")) == 12  # what is asked for is read


def test_the_same_data_have_the_same_identity_from_the_hub_and_from_a_file(things, tmp_path):
    np.save(tmp_path / "same.npy", COLOUR)
    prints = [Samples.read(dpstride.read_data(name)).fingerprint for name in (things, things, tmp_path / "same.npy")]
    assert len(set(prints)) == 1
    assert Samples.read(dpstride.read_data(f"{things},first=11")).fingerprint != prints[0]


def test_find_shuffles_the_examples_as_those_of_a_file(things, tmp_path):
    np.save(tmp_path / "same.npy", COLOUR)
    process = dpstride.ForwardProcess.linear(T=4)
    model = LoadedModel(dpstride.Denoiser(lambda x, time: 0 * x, process, predicts="x0", shape=(3, 6, 8)))
    for seed in (0, 1):
        found, expected = (split(Asked(data, None, 4, 6), model, seed) for data in (things, str(tmp_path / "same.npy")))
        assert [part.fingerprint for part in found] == [part.fingerprint for part in expected]


def test_training_takes_images_and_labels(things):
    images, classes = read_images(things, "labels")
    assert (images.shape, classes) == ((3, 6, 8), 3)
    np.testing.assert_array_equal(images.labels, LABELS)


# --- refusals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "column=imag",
            r"no column 'imag'. Did you mean image\? Its columns: image \(image\), label \(class label\), number",
        ),
        ("column=caption", "column 'caption' holds text, not images or arrays"),
        ("column=number", "column 'number' holds number, not images or arrays"),
        ("labels=caption", "column 'caption' holds text, not class labels"),
        ("prompts=label", "column 'label' holds class label, not text"),
        ("splot=test", r"no option 'splot'. Did you mean split\?"),
        ("first=0", "first must be a number of examples, at least 1, not '0'"),
        ("first=13", "the split holds only 12 examples"),
        ("split=train,split=train", "split needs one value"),
        ("revision=abc", "revision is for datasets on the hub"),
        ("split=train[:3]", r"there is no split 'train\[:3\]'.*For a part of a split, add first=N"),
    ],
)
def test_options_that_cannot_be_meant_are_named(things, options, message):
    with pytest.raises(ValueError, match=message):
        dpstride.read_data(f"{things},{options}", labels="labels" in options)


def test_columns_are_asked_for_where_several_would_do(tmp_path):
    two = datasets.Features({"x": datasets.Sequence(datasets.Value("float32")), "y": datasets.Array2D((1, 1), "int8")})
    name = write(tmp_path / "two", [{"x": [1.0, 2.0], "y": [[3]]}], two)
    with pytest.raises(
        ValueError, match=r"several columns hold arrays; name one with column=COLUMN. Its columns: x \(array\)"
    ):
        dpstride.read_data(name)
    assert dpstride.read_data(f"{name},column=x").tolist() == [[1.0, 2.0]]
    with pytest.raises(ValueError, match="no column holds class labels; name one with labels=COLUMN"):
        dpstride.read_data(f"{name},column=x", labels=True)


def bits16() -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((6, 8), 40_000, dtype=np.uint16)).save(file, "PNG")
    return file.getvalue()


def clear() -> bytes:
    return png(np.concatenate([COLOUR[0], np.full((6, 8, 1), 9, dtype=np.uint8)], axis=-1))


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (bits16(), "example 1: not an 8-bit image"),
        (clear(), "example 1: has transparent pixels"),
        (png(COLOUR[0, :4]), "example 0 is 6 × 8 and example 1 is 4 × 8. Resize them first"),
        (b"", "example 1: not a readable image"),
    ],
)
def test_images_are_read_by_the_rules_of_image_files(second, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        dpstride.read_data(write(tmp_path, rows([COLOUR[0], second])))


def test_images_that_a_camera_turned_are_read_upright(tmp_path):
    file, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(COLOUR[0]).save(file, "PNG", exif=exif)
    found = dpstride.read_data(write(tmp_path, rows([file.getvalue()])))
    np.testing.assert_array_equal(np.moveaxis(found[0].numpy(), 0, -1), np.rot90(COLOUR[0], -1))


def test_a_table_cannot_name_files_of_this_machine(tmp_path):
    Image.fromarray(COLOUR[0]).save(tmp_path / "secret.png")
    found = rows(COLOUR[:2])
    found[1]["image"] = {"bytes": None, "path": str(tmp_path / "set" / ".." / "secret.png")}
    with pytest.raises(ValueError, match=r"example 1: its image '.*secret.png' is not a file of the dataset"):
        dpstride.read_data(write(tmp_path / "set", found))
    hub = HubSource.parse("hub:owner/name")
    assert hub.holds("zip://0.png::hf://datasets/owner/name@abc/train.zip")
    for url in (
        "/etc/passwd",
        "hf://datasets/owner/other@abc/0.png",
        "hf://datasets/owner/name@abc/../../other@abc/0.png",
    ):
        assert not hub.holds(url)


def test_arrays_of_several_lengths_and_entries_that_lack_are_named(tmp_path):
    found = rows(COLOUR[:2])
    found[1]["signal"] = [1.0]
    with pytest.raises(ValueError, match="example 0 is 5 and example 1 is 1"):
        dpstride.read_data(write(tmp_path / "a", found) + ",column=signal")
    found[1]["signal"], found[1]["image"] = None, None
    for column in ("signal", "image"):
        with pytest.raises(ValueError, match=f"example 1: its '{column}' is empty"):
            dpstride.read_data(write(tmp_path / "a", found) + f",column={column}")
    found[1]["label"] = -1
    with pytest.raises(ValueError, match="example 1: its 'label' is -1, not a class"):
        dpstride.read_data(write(tmp_path / "a", found) + ",column=counts", labels=True)


def test_empty_sets_csv_and_folders_that_are_not_there(tmp_path):
    with pytest.raises(ValueError, match="the split holds no example"):
        dpstride.read_data(write(tmp_path / "empty", [], datasets.Features({"x": FEATURES["signal"]})))
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="its files do not declare the types of columns"):
        dpstride.read_data(f"hub:{tmp_path}/table")
    with pytest.raises(ValueError, match=r"'.*/tabel' is not a folder. Did you mean .*table\?"):
        dpstride.read_data(f"hub:{tmp_path}/tabel")
    with pytest.raises(
        ValueError, match=r"'a/b/c' is not the id of a dataset. Name a dataset on the Hugging Face hub as"
    ):
        dpstride.read_data("hub:a/b/c")


def test_a_bare_id_is_told_how_to_name_it_and_a_module_called_hub_keeps_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="If it is a data set of the Hugging Face hub, use hub:ylecun/fashion_mnist"):
        dpstride.read_data("ylecun/fashion_mnist")
    with pytest.raises(ValueError, match="Name a dataset on the Hugging Face hub as hub:OWNER/NAME, a local copy"):
        dpstride.read_data("hub:mnist")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "hub.py").write_text("import torch\ndef images():\n    return torch.zeros(2, 1, 3, 3)\n")
    assert dpstride.read_data("hub:images").shape == (2, 1, 3, 3)


def test_without_the_package_the_error_says_what_to_install(things, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ValueError, match=r'pip install "dpstride\[datasets\]"'):
        read_hub(things)


def test_the_command_line_says_in_one_line_that_the_hub_cannot_be_reached(tmp_path):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "dpstride",
            "find",
            "fashion-simple",
            "hub:owner/name,split=test",
            "-o",
            str(tmp_path / "out"),
        ],
        env=os.environ | {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(Path(dpstride.__file__).parents[1])},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 2
    assert "Error: hub:owner/name,split=test: cannot be opened (Couldn't reach 'owner/name' on the Hub" in done.stderr
    assert "give a local copy, hub:./FOLDER" in done.stderr
    assert not (tmp_path / "out").exists()


MODEL = """
import dpstride

def denoiser():
    process = dpstride.ForwardProcess.linear(T=4)
    return dpstride.Denoiser(lambda x, time: 0 * x, process, predicts="x0", shape=(1, 6, 8), name="zero")
"""


def test_verbs_give_the_same_statistics_as_on_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "zero_model.py").write_text(MODEL)
    np.save("images.npy", COLOUR[:, None, :, :, 0])
    for data, output in ((write(tmp_path / "set", rows(COLOUR[..., 0])), "hub.npz"), ("images.npy", "file.npz")):
        words = ["estimate", "zero_model:denoiser", data, "--samples", "2", "-o", output, "--quiet"]
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 0, result.output
    assert Path("hub.npz").read_bytes() == Path("file.npz").read_bytes()


def test_a_folder_of_images_with_captions_is_named_as_such(tmp_path):
    for i, pixels in enumerate(COLOUR[:2]):
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
        for name in (f"{i}.txt", f"{i}_longer.txt"):  # datasets goes by what there is most of
            (tmp_path / name).write_text("a cat")
    with pytest.raises(ValueError, match=rf"kind 'text' are not read.*by its path alone: {tmp_path}\."):
        dpstride.read_data(f"hub:{tmp_path}")
    assert dpstride.read_data(tmp_path).shape == (2, 3, 6, 8)
