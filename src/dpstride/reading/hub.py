"""Stage 0. Datasets on the Hugging Face hub, or local copies of them, streamed by the package ``datasets``.

``hub:OWNER/NAME,split=test,column=image,first=1000``: options follow commas, so that no shell needs quotes. ``datasets`` finds
the files and reads their tables; images arrive as bytes and are decoded by our own reader, once and by its rules. No code of
a dataset is run (``datasets`` has not done that since version 4), and nothing is unpickled.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from ..runs.extras import require
from .held import HeldFile
from .hints import hint
from .hub_source import HubSource, StoredFiles
from .images import measure_image, read_image, stack_images
from .limits import UNPACKED_BYTES, UnreadableFileError, check_unpacked
from .text import printable

MOST_BYTES = 2**30  # of values, if the number of examples is not given
LEAST_BYTES = 256  # counted for a value, however small
ROWS = 16  # of Parquet unpacked at once; `datasets` would unpack a whole row group
FORMS = ("parquet", "arrow", "json", "csv", "imagefolder")  # webdataset may hold pickles of torch
IMAGE, ARRAY, LABEL, TEXT = "image", "array", "class label", "text"


@dataclass(frozen=True)
class HubData:
    """Values as read: images uint8 [N, C, H, W] or arrays [N, …]; class labels int64 [N] and texts if asked for."""

    values: npt.NDArray[Any]
    labels: npt.NDArray[np.int64] | None
    prompts: list[str] | None


def read_hub(text: str, *, labels: bool = False) -> HubData:
    """Read all examples of a split in their stored order, or the first ones if ``first`` is given."""
    source = HubSource.parse(text)
    datasets = require("datasets", f"{source}: this needs the package datasets", "datasets")
    stream, stored = _open(datasets, source)
    if stream.features is None:  # of CSV
        raise ValueError(f"{source}: its files do not declare the types of columns. Save them as Parquet.")
    kinds = {name: _kind(datasets, feature) for name, feature in stream.features.items()}
    pictures = IMAGE if IMAGE in kinds.values() else ARRAY
    column = _chosen(source, "column", kinds, pictures, allowed=(IMAGE, ARRAY), words="images or arrays")
    label = prompt = None
    if labels or source.labels:
        label = _chosen(source, "labels", kinds, LABEL, allowed=(LABEL, "number"), words="class labels")
    if source.prompts:
        prompt = _chosen(source, "prompts", kinds, TEXT, allowed=(TEXT,), words="text")
    dtype = None if kinds[column] == IMAGE else _leaf(stream.features[column]).dtype
    stream = stream.select_columns(list(dict.fromkeys(name for name in (column, label, prompt) if name)))
    if kinds[column] == IMAGE:
        stream = stream.cast_column(column, datasets.Image(decode=False))
    counted = getattr((stream.info.splits or {}).get(str(stream.split)), "num_examples", None)

    values: list[npt.NDArray[Any]] = []
    classes: list[int] = []
    texts: list[str] = []
    shown, unpacked = str(source), 0
    for number, row in enumerate(islice(_rows(stream, source), source.first)):
        name = f"{shown}, example {number}"
        if row[column] is None:
            raise UnreadableFileError(f"{name}: its {column!r} is empty.")
        if kinds[column] == IMAGE:
            file = _image_file(row[column], source, stored, name)
            shape = measure_image(file)
            unpacked += math.prod(shape)
            _check_shape(shape[:2], values[0].shape[:2] if values else shape[:2], source, number)
        else:
            array = _array(row[column], dtype, name)
            unpacked += array.nbytes
            _check_shape(array.shape, values[0].shape if values else array.shape, source, number)
        if unpacked > UNPACKED_BYTES:
            check_unpacked(name, unpacked, stored.size, "Take fewer examples, with first=N.")
        values.append(read_image(file) if kinds[column] == IMAGE else array)
        if source.first is None:
            _check_size(source, max(values[0].nbytes, LEAST_BYTES) * max(len(values), counted or 0), counted)
        if label is not None:
            classes.append(_class(row[label], name, label))
        if prompt is not None:
            texts.append(_text(row[prompt], name, prompt))
    if not values:
        raise ValueError(f"{source}: the split holds no example. Choose another split.")
    if source.first is not None and len(values) < source.first:
        raise ValueError(f"{source}: the split holds only {len(values):,} examples. Ask for fewer (first=N).")
    return HubData(
        stack_images(values) if kinds[column] == IMAGE else np.stack(values),
        None if label is None else np.array(classes, dtype=np.int64),
        None if prompt is None else texts,
    )


def _open(datasets: Any, source: HubSource) -> tuple[Any, StoredFiles]:
    """Return the split as a stream, and its files."""
    place = str(source.folder) if source.local else source.place
    try:
        builder = datasets.load_dataset_builder(place, source.config, revision=source.revision)
        if (form := type(builder).__module__.rpartition(".")[2]) not in FORMS:
            alone = f" Give a folder of images, also with captions, by its path alone: {source.place}."
            folder = alone if source.local else ""
            raise UnreadableFileError(
                f"{source}: files of the kind {form!r} are not read. Save them as Parquet.{folder}"
            )
        files = {str(name): list(map(str, some)) for name, some in (builder.config.data_files or {}).items()}
        _check_own(source, [file for some in files.values() for file in some])
        if form == "parquet":
            builder.config.batch_size, builder.config.on_bad_files = ROWS, "error"
        splits = builder.as_streaming_dataset()
    except UnreadableFileError:
        raise
    except Exception as error:  # many kinds: no network, no such dataset or config, gated, unknown format
        remedy = "" if source.local else " If the hub cannot be reached, give a local copy, hub:./FOLDER."
        if "config" in str(error).lower():
            remedy = " Name one with config=NAME."
        raise ValueError(f"{source}: cannot be opened ({_line(error)}).{remedy}") from error
    names = list(map(str, splits))
    if source.split is None and len(names) > 1:
        raise ValueError(f"{source}: choose a split with split=NAME: {', '.join(names)[:400]}.")
    split = names[0] if source.split is None else source.split
    if split not in names:
        raise ValueError(
            f"{source}: there is no split {split!r}.{hint(split, names)} It has {', '.join(names)[:400]}. For a part of "
            "a split, add first=N."
        )
    return splits[split], StoredFiles(files.get(split, ()))


def _check_own(source: HubSource, files: list[str]) -> None:
    """Raise if the card of a dataset, or a link in it, names a file elsewhere."""
    for file in files:
        if not source.holds(file):
            raise UnreadableFileError(
                f"{source}: it names {printable(file, 200)}, which lies outside of it and is not read. Copy the file into "
                "the dataset."
            )


def _rows(stream: Any, source: HubSource) -> Iterator[dict[str, Any]]:
    rows, number = iter(stream), 0
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except Exception as error:  # a lost connection, a damaged file
            raise UnreadableFileError(f"{source}: reading failed at example {number} ({_line(error)}).") from error
        yield row
        number += 1


def _kind(datasets: Any, feature: Any) -> str:
    """Return the kind of a column: image, array, class label, text, number, or the name of a type that is not used."""
    leaf = _leaf(feature)
    numeric = not isinstance(leaf, datasets.ClassLabel) and _is_number(getattr(leaf, "dtype", None))
    match feature:
        case datasets.Image():
            return IMAGE
        case datasets.ClassLabel():
            return LABEL
        case datasets.Value():
            return "number" if numeric else TEXT if "string" in feature.dtype else f"{feature.dtype} values"
    return ARRAY if numeric else type(feature).__name__


def _leaf(feature: Any) -> Any:
    while hasattr(feature, "feature"):
        feature = feature.feature
    return feature


def _is_number(dtype: Any) -> bool:
    try:
        return np.dtype(dtype).kind in "biuf" and dtype is not None
    except TypeError:
        return False


def _chosen(
    source: HubSource, option: str, kinds: dict[str, str], kind: str, *, allowed: tuple[str, ...], words: str
) -> str:
    """Return the column that an option names, of one of the ``allowed`` kinds (``words``), or the only one of ``kind``."""
    named: str | None = getattr(source, option)
    if named is not None:
        if named not in kinds:
            raise ValueError(f"{source}: there is no column {named!r}.{hint(named, kinds)} {_listed(kinds)}")
        if kinds[named] not in allowed:
            raise ValueError(f"{source}: column {named!r} holds {kinds[named]}, not {words}. {_listed(kinds)}")
        return named
    found = [name for name, each in kinds.items() if each == kind]
    if len(found) != 1:
        which = "several columns hold" if found else "no column holds"
        raise ValueError(f"{source}: {which} {kind}s; name one with {option}=COLUMN. {_listed(kinds)}")
    return found[0]


def _listed(kinds: dict[str, str]) -> str:
    return f"Its columns: {', '.join(f'{name} ({kind})' for name, kind in kinds.items())[:400] or 'none'}."


def _image_file(image: dict[str, Any], source: HubSource, stored: StoredFiles, name: str) -> HeldFile:
    """Return the file of an image, which is in the table itself or next to it."""
    if image.get("bytes") is not None:
        return HeldFile(name, image["bytes"])
    import fsspec

    url = image.get("path") or ""
    if not source.holds(url):
        raise UnreadableFileError(f"{name}: its image {url!r:.200} is not a file of the dataset.")
    stored.add(url)
    try:
        with fsspec.open(url, "rb") as file:
            content = file.read(UNPACKED_BYTES + 1)
        if len(content) > UNPACKED_BYTES:
            raise OSError(f"more than {UNPACKED_BYTES:,} bytes")
        return HeldFile(f"{name} ({printable(url)})", content)
    except Exception as error:
        raise UnreadableFileError(f"{name}: its image {url!r:.200} cannot be read ({_line(error)}).") from error


def _array(value: Any, dtype: str | None, name: str) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value, dtype=dtype)
    except (TypeError, ValueError, OverflowError) as error:  # lists of several lengths, empty entries
        raise UnreadableFileError(f"{name}: not an array of numbers ({_line(error)}).") from error
    if array.size == 0:
        raise UnreadableFileError(f"{name}: an array without numbers.")
    return array


def _check_shape(found: tuple[int, ...], expected: tuple[int, ...], source: HubSource, number: int) -> None:
    if found != expected:
        raise UnreadableFileError(
            f"{source}: all examples must have one size, but example 0 is {' × '.join(map(str, expected))} and example "
            f"{number} is {' × '.join(map(str, found))}. Resize them first; the model sees one size."
        )


def _check_size(source: HubSource, size: int, counted: int | None) -> None:
    if size > MOST_BYTES:
        every = f"its {counted:,} examples" if counted else "its examples"
        raise ValueError(
            f"{source}: {every} have more than {MOST_BYTES:,} bytes. Read only the first ones with first=N; if examples "
            "are stored by class, the first ones do not represent all."
        )


def _class(value: Any, name: str, column: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UnreadableFileError(
            f"{name}: its {column!r} is {value!r:.40}, not a class (0, 1, …). Choose another split."
        )
    return value


def _text(value: Any, name: str, column: str) -> str:
    if not isinstance(value, str):
        raise UnreadableFileError(f"{name}: its {column!r} is {value!r:.40}, not text.")
    return value


def _line(error: Exception) -> str:
    """Return a foreign error on one line."""
    return printable(" ".join(str(error).split()) or type(error).__name__, 300)
