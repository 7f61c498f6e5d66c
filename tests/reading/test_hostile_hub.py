"""Attacks by data sets of the hub: tables, cards and links that reach for other files, small files that take much memory."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from datasets.packaged_modules.parquet.parquet import Parquet
from PIL import Image

import dpstride
from dpstride.reading.hub import ROWS
from dpstride.reading.hub_source import HubSource

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
IMAGE = {"image": {"_type": "Image"}}
ELSEWHERE = "which lies outside of it and is not read"
pytestmark = pytest.mark.attack("hostile data sets")


@pytest.fixture(autouse=True, scope="module")
def _quiet():
    datasets.disable_progress_bars()


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def table(folder: Path, columns: dict[str, pa.Array], features: dict[str, Any]) -> str:
    """A data set of one Parquet file, packed as small as it will go."""
    folder.mkdir(parents=True, exist_ok=True)
    told = {"huggingface": json.dumps({"info": {"features": features}})}
    pq.write_table(pa.table(columns).replace_schema_metadata(told), folder / "train.parquet", compression="zstd")
    return f"hub:{folder}"


def images(folder: Path, found: list[dict[str, Any]]) -> str:
    form = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return table(folder, {"image": pa.array(found, form)}, IMAGE)


def numbers(folder: Path, values: list[list[float]]) -> str:
    features = {"x": {"_type": "List", "feature": {"_type": "Value", "dtype": "float64"}}}
    return table(folder, {"x": pa.array(values, pa.list_(pa.float64()))}, features)


# --- other files ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    [
        "file://SECRET",
        "local://SECRET",
        "simplecache::file://SECRET",
        "zip://x.png::HERE/z.zip::file://SECRET",
        "file://SECRET::HERE/train.parquet",
        "reference::HERE/train.parquet",
        "dir://x::HERE",
        "HERE/../secret.png",
        "../secret.png",
        "HERE/link.png",
        "HERE/pipe.png",
        "HERE",
        "",
    ],
)
def test_tables_do_not_reach_other_files_from_whichever_folder_one_works_in(url, tmp_path, monkeypatch):
    secret, here = tmp_path / "secret.png", tmp_path / "set"
    secret.write_bytes(png(PIXELS))
    images(here, [{"bytes": None, "path": url.replace("SECRET", str(secret)).replace("HERE", str(here))}])
    (here / "link.png").symlink_to(secret)
    os.mkfifo(here / "pipe.png")  # which would be waited for
    monkeypatch.chdir(here)
    with pytest.raises(ValueError, match=r"example 0: its image '.*' is not a file of the dataset"):
        dpstride.read_data("hub:./")


def card(folder: Path, pattern: str) -> str:
    folder.mkdir()
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: default\n  data_files:\n  - split: train\n    path: '{pattern}'\n---\n"
    )
    return f"hub:{folder}"


@pytest.mark.parametrize("pattern", ["SECRET/train.parquet", "../secret/*.parquet", "file://SECRET/train.parquet"])
def test_a_card_does_not_name_tables_of_other_folders(pattern, tmp_path):
    secret = tmp_path / "secret"
    numbers(secret, [[1.0, 2.0]])
    with pytest.raises(ValueError, match=ELSEWHERE):
        dpstride.read_data(card(tmp_path / "set", pattern.replace("SECRET", str(secret))))


@pytest.mark.parametrize(
    ("link", "end", "message"),
    [("train.parquet", "train.parquet", ELSEWHERE), ("data", "", "doesn't contain any data files")],
)
def test_links_do_not_lead_to_tables_of_other_folders(link, end, message, tmp_path):
    numbers(tmp_path / "secret", [[1.0, 2.0]])
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / link).symlink_to(tmp_path / "secret" / end)
    with pytest.raises(ValueError, match=message):
        dpstride.read_data(f"hub:{tmp_path}/set")


def test_a_card_cannot_have_damaged_files_left_out(tmp_path):
    numbers(tmp_path / "set", [[1.0, 2.0]])
    (tmp_path / "set" / "other.parquet").write_bytes(b"PAR1 damaged PAR1")
    (tmp_path / "set" / "README.md").write_text(
        "---\nconfigs:\n- config_name: default\n  data_files: '*.parquet'\n  on_bad_files: skip\n---\n"
    )
    with pytest.raises(ValueError, match=r"cannot be opened \(Parquet file size is 17 bytes"):
        dpstride.read_data(f"hub:{tmp_path}/set")


def test_snapshots_in_the_cache_of_the_hub_are_read_through_their_links(tmp_path):
    home = tmp_path / "datasets--a--b"
    (home / "blobs").mkdir(parents=True)
    numbers(home / "made", [[1.0, 2.0]])
    (home / "made" / "train.parquet").rename(home / "blobs" / "0123")
    snapshot = home / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "train.parquet").symlink_to("../../blobs/0123")
    assert dpstride.read_data(f"hub:{snapshot}").tolist() == [[1.0, 2.0]]


def test_data_sets_on_the_hub_have_files_of_their_own_only():
    hub = HubSource.parse("hub:owner/name")
    for url in ("hf://datasets/owner/name@abc/a.parquet", "zip://a/0.png::hf://datasets/owner/name@abc/train.zip"):
        assert hub.holds(url)
    for url in (
        "/etc/passwd",
        "simplecache::hf://datasets/owner/name@abc/a.png",
        "hf://datasets/owner/name2@abc/0.png",
    ):
        assert not hub.holds(url)


def test_web_data_sets_in_which_datasets_would_load_tensors_are_not_opened(tmp_path, monkeypatch):
    torch.save(torch.zeros(2), tmp_path / "0.pth")
    (tmp_path / "set").mkdir()
    with tarfile.open(tmp_path / "set" / "train.tar", "w") as archive:
        archive.add(tmp_path / "0.pth", "0.pth")
    loaded: list[object] = []
    monkeypatch.setattr(torch, "load", lambda *given, **_: loaded.append(given))
    with pytest.raises(ValueError, match=r"files of the kind 'webdataset' are not read. Save them as Parquet"):
        dpstride.read_data(f"hub:{tmp_path}/set")
    assert loaded == []
    list(datasets.load_dataset(str(tmp_path / "set"), split="train", streaming=True))
    assert loaded  # which is what would have been run


# --- memory ---------------------------------------------------------------------------------------------------------------


def bomb(folder: Path, kind: str) -> str:
    """Some 2.5 MB of equal images that pack to a few kB, each way in which they can."""
    folder.mkdir()
    black = png(np.zeros((500, 500, 3), dtype=np.uint8))
    if kind == "rows":
        return images(folder, [{"bytes": black, "path": None}] * 30)
    if kind == "one file for all":
        (folder / "0.png").write_bytes(black)
        return images(folder, [{"bytes": None, "path": str(folder / "0.png")}] * 30)
    if kind == "numbers":
        return numbers(folder, [[0.0] * 100_000] * 30)
    with zipfile.ZipFile(folder / "train.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(30):
            archive.writestr(f"{number}.png", black)
    return f"hub:{folder}"


@pytest.mark.parametrize("kind", ["rows", "one file for all", "numbers", "zip"])
@pytest.mark.parametrize("first", ["", ",first=30"])
def test_what_is_unpacked_is_compared_with_what_is_stored(kind, first, tmp_path, monkeypatch):
    for module in ("hub", "limits"):
        monkeypatch.setattr(f"dpstride.reading.{module}.UNPACKED_BYTES", 2**20)
    with pytest.raises(
        ValueError, match=r"would unpack to .* more than 100 times as much.*Take fewer examples, with first=N"
    ):
        dpstride.read_data(bomb(tmp_path / "set", kind) + first)


def test_no_more_of_a_file_beside_a_table_is_read_than_may_be(tmp_path, monkeypatch):
    monkeypatch.setattr("dpstride.reading.hub.UNPACKED_BYTES", 1000)
    name = images(tmp_path / "set", [{"bytes": None, "path": str(tmp_path / "set" / "huge.png")}])
    with open(tmp_path / "set" / "huge.png", "wb") as file:
        file.truncate(2**33)
    with pytest.raises(ValueError, match=r"huge.png' cannot be read .more than 1,000 bytes"):
        dpstride.read_data(name)


def test_tiny_values_count_as_what_they_take(tmp_path, monkeypatch):
    monkeypatch.setattr("dpstride.reading.hub.MOST_BYTES", 2**20)
    values = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(10_000, np.int8)), 1)  # 10,000 bytes
    features = {"x": {"_type": "List", "feature": {"_type": "Value", "dtype": "int8"}, "length": 1}}
    with pytest.raises(ValueError, match="its examples have more than 1,048,576 bytes"):
        dpstride.read_data(table(tmp_path, {"x": values}, features))


def test_few_rows_of_a_table_are_unpacked_at_once(tmp_path, monkeypatch):
    taken: list[int] = []
    cast = Parquet._cast_table

    def counting(self, rows):
        taken.append(rows.num_rows)
        return cast(self, rows)

    monkeypatch.setattr(Parquet, "_cast_table", counting)
    dpstride.read_data(images(tmp_path / "set", [{"bytes": png(PIXELS), "path": None}] * 40))
    assert max(taken) == ROWS
