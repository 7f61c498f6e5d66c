"""CIFAR as published: binary files, Python batches and folders give the embedded images; damaged and hostile ones do not."""

from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dpstride
from cifar_files import CLASSES, IMAGES, LABELS, ROWS, Python2, batch, binary, with_bytes, write_folder
from dpstride.reading.array_pickles import read_array_pickle
from dpstride.reading.limits import UnreadableFileError
from dpstride.statistics.files import describe_source

pytestmark = pytest.mark.attack("CIFAR files, damaged or hostile")


def test_the_writer_of_this_test_is_python_2s_to_the_byte() -> None:
    """The published batches.meta, whose MD5 sum torchvision has."""
    meta = {"num_cases_per_batch": 10_000, "label_names": CLASSES, "num_vis": 3072}
    assert hashlib.md5(Python2().dump(meta)).hexdigest() == "5ff9c542aee3614f3951f8cda6e48888"


FORMS = {
    "binary": ("data_batch_1.bin", binary()),
    "Python 2": ("data_batch_1", Python2().dump(batch())),
    **{f"protocol {n}": ("data_batch_1", pickle.dumps(batch(), n)) for n in (2, 3, 4, 5)},
    **{f"protocol {n}, bytes": ("data_batch_1.pkl", pickle.dumps(with_bytes(batch()), n)) for n in (2, 3, 4, 5)},
    "Fortran order": ("data_batch_1", pickle.dumps(batch(data=np.asfortranarray(ROWS)), 4)),
    "Fortran order, protocol 5": ("data_batch_1", pickle.dumps(batch(data=np.asfortranarray(ROWS)), 5)),
    "labels as an array": ("data_batch_1.pickle", pickle.dumps(batch(labels=LABELS.numpy()), 4)),
    "labels big-endian": ("data_batch_1.pickle", pickle.dumps(batch(labels=LABELS.numpy().astype(">i4")), 2)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_published_form_gives_the_same_images_and_labels(tmp_path: Path, form: str) -> None:
    name, content = FORMS[form]
    (tmp_path / name).write_bytes(content)
    images = dpstride.read_data(tmp_path / name)
    assert images.dtype == torch.uint8
    assert torch.equal(images, IMAGES)
    labelled, labels = dpstride.read_data(tmp_path / name, labels=True)
    assert torch.equal(labelled, IMAGES)
    assert torch.equal(labels, LABELS)


def test_rewritten_protocols_are_what_numpy_and_python_read(tmp_path: Path) -> None:
    """The oracle of the test above: pickle itself reads the same from these bytes."""
    for name, content in FORMS.values():
        if not name.endswith(".bin"):
            loaded = pickle.loads(content, encoding="latin1")
            np.testing.assert_array_equal(loaded.get("data", loaded.get(b"data")), ROWS)


def test_both_forms_of_cifar_100_give_the_fine_labels(tmp_path: Path) -> None:
    fine, coarse = (LABELS.numpy() * 11) % 100, LABELS.numpy() % 20
    (tmp_path / "train.bin").write_bytes(
        np.column_stack([coarse.astype(np.uint8), fine.astype(np.uint8), ROWS]).tobytes()
    )
    saved = batch(labels=None, fine_labels=fine.tolist(), coarse_labels=coarse.tolist())
    (tmp_path / "train").write_bytes(Python2().dump(saved))
    for name in ("train.bin", "train"):
        images, labels = dpstride.read_data(tmp_path / name, labels=True)
        assert torch.equal(images, IMAGES)
        assert labels.tolist() == fine.tolist()


# --- folders -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".bin", ""])
def test_a_folder_means_its_training_half_and_its_test_file_the_test_half(tmp_path: Path, suffix: str) -> None:
    folder = write_folder(tmp_path / "cifar", suffix)
    images, labels = dpstride.read_data(folder, labels=True)
    assert torch.equal(images, IMAGES[:40])
    assert torch.equal(labels, LABELS[:40])
    assert torch.equal(dpstride.read_data(folder / f"test_batch{suffix}"), IMAGES[40:])
    assert describe_source(folder) == f"{folder}, its training half"
    for number in range(1, 6):
        (folder / f"data_batch_{number}{suffix}").unlink()
    assert torch.equal(dpstride.read_data(folder), IMAGES[40:])
    assert describe_source(folder) == f"{folder}, its test half"


def test_ten_batches_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for number in range(10):
        (tmp_path / f"data_batch_{number + 1}.bin").write_bytes(
            binary(ROWS[number : number + 1], LABELS[number : number + 1])
        )
    assert torch.equal(dpstride.read_data(tmp_path), IMAGES[:10])


def test_a_folder_of_cifar_100_is_its_training_half(tmp_path: Path) -> None:
    for half, rows in (("train", ROWS[:30]), ("test", ROWS[30:])):
        labels = np.zeros((len(rows), 2), dtype=np.uint8)
        (tmp_path / f"{half}.bin").write_bytes(np.column_stack([labels, rows]).tobytes())
    (tmp_path / "fine_label_names.txt").write_text("apple\n")
    assert torch.equal(dpstride.read_data(tmp_path), IMAGES[:30])


def test_a_folder_with_a_gap_or_with_two_forms_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "gap", ".bin")
    (folder / "data_batch_3.bin").unlink()
    with pytest.raises(UnreadableFileError, match=r"gap: holds data_batch_5\.bin, but not data_batch_3\. Fetch"):
        dpstride.read_data(folder)
    folder = write_folder(tmp_path / "two", ".bin")
    (folder / "data_batch_1").write_bytes(FORMS["Python 2"][1])
    with pytest.raises(UnreadableFileError, match=r"two: holds data_batch_1.* two forms\. Keep one"):
        dpstride.read_data(folder)


def test_archives_and_the_folder_around_it_name_the_remedy(tmp_path: Path) -> None:
    write_folder(tmp_path / "cifar-10-batches-bin", ".bin")
    with pytest.raises(UnreadableFileError, match=r"no image found.*It holds 'cifar-10-batches-bin': give that folder"):
        dpstride.read_data(tmp_path)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(ValueError, match=r"archives are not read\. Unpack it \(tar xf cifar-10-binary\.tar\.gz\)"):
        dpstride.read_data(tmp_path / "cifar-10-binary.tar.gz")


def test_a_folder_per_class_gives_labels_where_they_are_asked_for(tmp_path: Path) -> None:
    from PIL import Image

    for i, (image, label) in enumerate(zip(IMAGES[:20], LABELS[:20].tolist(), strict=True)):
        (tmp_path / CLASSES[label]).mkdir(exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).save(tmp_path / CLASSES[label] / f"{i:02}.png")
    order = sorted(range(20), key=lambda i: (CLASSES[LABELS[i]], i))
    present = sorted({CLASSES[label] for label in LABELS[:20]})
    images, labels = dpstride.read_data(tmp_path, labels=True)
    assert torch.equal(images, IMAGES[order])
    assert [present[label] for label in labels] == [CLASSES[LABELS[i]] for i in order]
    assert torch.equal(dpstride.read_data(tmp_path), IMAGES[order])
    Image.fromarray(IMAGES[0].permute(1, 2, 0).numpy()).save(tmp_path / "stray.png")
    with pytest.raises(ValueError, match=r"these images have no labels\. Put each class into a folder"):
        dpstride.read_data(tmp_path, labels=True)


# --- damaged and hostile -----------------------------------------------------------------------------------------------


class Runs:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, *call: Any) -> None:
        self.call = call or (open, ("ran.txt", "w"))

    def __reduce__(self) -> Any:
        return self.call


HOSTILE = {
    "os.system": pickle.dumps(Runs(__import__("os").system, ("touch ran.txt",)), 2),
    "in the data": pickle.dumps(batch(data=Runs()), 2),
    "in a label": pickle.dumps(batch(labels=[Runs()]), 4),
    "beside the data": pickle.dumps(batch(more=Runs(exec, ("open('ran.txt', 'w')",))), 5),
    "as a key": b"\x80\x02}cposix\nsystem\n(U\x0dtouch ran.txttRK\x01s.",
    "an instance": b"\x80\x02(cposix\nsystem\nU\x0dtouch ran.txto.",
    "an old instance": b"\x80\x02(U\x0dtouch ran.txtiposix\nsystem\n.",
    "a name from the stack": b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x0dtouch ran.txt\x85R.",
    "objects in an array": pickle.dumps(batch(data=np.array([Runs()], dtype=object)), 2),
    "without a protocol": b"cposix\nsystem\n(S'touch ran.txt'\ntR.",
}


@pytest.mark.parametrize("form", HOSTILE)
@pytest.mark.parametrize("folder", [False, True])
def test_no_code_in_a_batch_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, folder: bool) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cifar").mkdir()
    path = tmp_path / "cifar" / "data_batch_1"
    path.write_bytes(HOSTILE[form])
    with pytest.raises(ValueError, match=r"no code in it is run|cannot be read"):
        dpstride.read_data(path.parent if folder else path)
    assert not (tmp_path / "ran.txt").exists()


def test_the_batches_would_have_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle of the test above."""
    for form in ("os.system", "a name from the stack", "without a protocol", "an old instance"):
        (tmp_path / form).mkdir()
        monkeypatch.chdir(tmp_path / form)
        pickle.loads(HOSTILE[form])
        assert Path("ran.txt").exists(), form


DAMAGED = {
    "empty": ("a.bin", b"", r"0 bytes are not whole rows"),
    "cut": ("a.bin", binary()[:-1], r"153,649 bytes are not whole rows of CIFAR-10 \(3,073 bytes.* nor of CIFAR-100"),
    "something else": ("a.bin", bytes(1000), r"1,000 bytes are not whole rows"),
    "label 10": ("a.bin", binary(labels=[*LABELS[:-1], 10]), r"image 49 has the label 10, but labels are 0 to 9"),
    "coarse label": ("a.bin", bytes([20, 0]) + bytes(3072), r"a coarse label is 20"),
    "fine label": ("a.bin", bytes([0, 100]) + bytes(3072), r"image 0 has the label 100, but labels are 0 to 99"),
    "half a pickle": ("data_batch_1", FORMS["Python 2"][1][:2000], r"its pickle is damaged"),
    "an end too early": ("data_batch_1", FORMS["protocol 4"][1][:-10], r"its pickle is damaged|is not complete"),
    "no dict": ("data_batch_1", pickle.dumps([1, 2], 2), r"holds a list, not the data and labels"),
    "no labels": ("data_batch_1", pickle.dumps(batch(labels=None), 2), r"not the data and labels of a CIFAR batch"),
    "no data": ("data_batch_1", pickle.dumps(batch(data=None), 2), r"not the data and labels of a CIFAR batch"),
    "its meta": ("batches", Python2().dump({"label_names": CLASSES}), r"holds 'label_names', not the data"),
    "a label too few": ("data_batch_1", Python2().dump(batch(labels=[1] * 49)), r"50 images, but 49 labels"),
    "label 200": ("data_batch_1", Python2().dump(batch(labels=[200] * 50)), r"image 0 has the label 200"),
    "label -1": ("data_batch_1", pickle.dumps(batch(labels=[*LABELS[:-1].tolist(), -1]), 2), r"has the label -1"),
    "labels of text": ("data_batch_1", pickle.dumps(batch(labels=["3"] * 50), 2), r"no list of whole numbers"),
    "true labels": ("data_batch_1", pickle.dumps(batch(labels=[True] * 50), 2), r"no list of whole numbers"),
    "other rows": ("data_batch_1", Python2().dump(batch(data=ROWS[:, :784])), r"uint8 \(50, 784\), not uint8 \[N, 3072\]"),
    "16 bits": ("data_batch_1", pickle.dumps(batch(data=ROWS.astype(np.uint16)), 2), r"its data are uint16"),
    "floats": ("data_batch_1", pickle.dumps(batch(data=ROWS.astype(np.float32)), 2), r"calls numpy dtype"),
    "a shape that lies": (
        "data_batch_1",
        FORMS["Python 2"][1].replace(b"K\x32M\x00\x0c\x86", b"K\x33M\x00\x0c\x86"),
        r"an array of shape \(51, 3072\) has 156672 bytes, but the file has 153600",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_refused_by_name(tmp_path: Path, case: str) -> None:
    name, content, match = DAMAGED[case]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnreadableFileError, match=match) as refusal:
        dpstride.read_data(tmp_path / name)
    assert str(tmp_path / name) in str(refusal.value)


def test_a_length_of_both_kinds_is_told_by_its_labels(tmp_path: Path) -> None:
    """3,074 rows of CIFAR-10 are as long as 3,073 rows of CIFAR-100."""
    ten = np.zeros((3074, 3073), dtype=np.uint8)
    ten[:, 0], ten[7, 1:] = 3, 200
    hundred = np.full((3073, 3074), 200, dtype=np.uint8)
    hundred[:, 0], hundred[:, 1] = 19, 99
    for rows, label in ((ten, 3), (hundred, 99)):
        (tmp_path / "a.bin").write_bytes(rows.tobytes())
        images, labels = dpstride.read_data(tmp_path / "a.bin", labels=True)
        assert len(images) == len(rows)
        assert set(labels.tolist()) == {label}
        np.testing.assert_array_equal(images.reshape(-1, 3072).numpy(), rows[:, -3072:])


def test_a_pickle_is_read_for_plain_values_too(tmp_path: Path) -> None:
    (tmp_path / "batches.meta").write_bytes(Python2().dump({"label_names": CLASSES, "num_vis": 3072}))
    assert read_array_pickle(tmp_path / "batches.meta", "") == {"label_names": CLASSES, "num_vis": 3072}


def test_a_pickle_does_not_unpack_to_more_than_it_has(tmp_path: Path) -> None:
    """Text of a megabyte, turned into bytes a thousand times: a gigabyte for 13 KB more."""
    text = b"X" + (10**6).to_bytes(4, "little") + b"x" * 10**6 + b"q\x01"
    again = b"c_codecs\nencode\nh\x01X\x06\0\0\0latin1\x86R"
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02](" + text + 1000 * again + b"e.")
    with pytest.raises(UnreadableFileError, match="it unpacks to more bytes than it has"):
        dpstride.read_data(tmp_path / "data_batch_1")


def test_a_long_tuple_stands_in_one_place_only(tmp_path: Path) -> None:
    """A tuple of n values in m places is n + m instructions, and n · m values to whoever walks it."""
    values = b"(" + 200_000 * b"K\x01" + b"tq\x01"
    (tmp_path / "data_batch_1").write_bytes(b"\x80\x02](" + values + 200_000 * b"h\x01" + b"e.")
    with pytest.raises(UnreadableFileError, match="holds one list, dict or long tuple in two places"):
        dpstride.read_data(tmp_path / "data_batch_1")
