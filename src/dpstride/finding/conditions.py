"""Prompts and class labels, stored with the samples of DATA or given separately; if they are missing, all ways are named."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sized
from pathlib import Path
from typing import Any, NamedTuple

from ..reading.plain import read_text

LABEL_NAMES = ("class_labels", "labels", "label", "y")  # of arrays in files, and of a network's third argument
LONE = ".txt"


class Kind(NamedTuple):
    """A kind of condition: its name in words, the names of its arrays in files, and the ways to give it."""

    words: str
    keys: tuple[str, ...]
    ways: str


PROMPTS = Kind(
    "a prompt per sample",
    ("prompts", "prompt", "captions"),
    "the array 'prompts' next to 'images' in an .npz file, captions next to the images of a folder (image.txt for image.png), "
    "a column of a dataset (hub:OWNER/NAME,prompts=COLUMN), or --conditioning prompts.txt, one per line (a single line is for "
    "all samples, an empty line is the empty prompt)",
)
LABELS = Kind(
    "a class label per sample",
    LABEL_NAMES,
    "the array 'labels' next to 'images' in an .npz file, one folder of images per class, a dataset with class labels "
    "(hub:OWNER/NAME), or --conditioning labels.npy or labels.txt, one number per line",
)


def missing(kind: Kind, where: object) -> ValueError:
    """Return the error for data without the condition that the model needs."""
    return ValueError(f"MODEL takes {kind.words}, and {where} has none. Give {kind.ways}.")


def conditioned(text: str, kind: Kind | None, given: str | None = None) -> Any:
    """Read DATA, as a pair with its conditions if the model takes any: those ``given`` separately, or its own."""
    from .inputs import read_data

    if given is not None:
        data = read_data(text)
        x = data[0] if isinstance(data, tuple) else data
        return x, _matched(entries_of(given, kind), len(x), kind, given)
    if kind is None:
        return read_data(text)
    if kind is LABELS:
        data = read_data(text, labels=True)
    else:
        captions = _captions(Path(text), kind)
        data = read_data(text) if captions is None else (read_data(text), captions)
    if not isinstance(data, tuple):
        raise missing(kind, text)
    return data[0], _chosen(kind, data[1], text)


def entries_of(text: str, kind: Kind | None) -> Any:
    """Read conditions alone: lines of a text file, an array, or those stored with samples."""
    from .inputs import read_data

    path = Path(text)
    if path.suffix == LONE and path.is_file():
        lines = read_text(path).splitlines() or [""]
        return lines if kind is PROMPTS else _numbers(lines, path)
    if kind is PROMPTS:
        captions = _captions(path, kind)
        data = read_data(text) if captions is None else (None, captions)
    else:
        data = read_data(text, labels=not _is_lone_array(path))
    found = data[1] if isinstance(data, tuple) else data
    if not isinstance(data, tuple) and not (_is_lone_array(path) and found.ndim == 1):
        raise ValueError(
            f"--conditioning {text}: these data have no conditioning, only samples. Save the conditions "
            "with them, under the names of the network's arguments: np.savez('data.npz', x=x, NAME=conditions)."
        )
    return found if kind is None else _chosen(kind, found, text)


def count_of(entries: Any) -> int:
    """Return the number of conditions."""
    return len(next(iter(entries.values()))) if isinstance(entries, Mapping) else len(entries)


def _is_lone_array(path: Path) -> bool:
    return path.suffix == ".npy" and path.is_file()


def _chosen(kind: Kind, found: Any, text: str) -> Any:
    """Return the conditions of a kind from named arrays; other names are keywords of the network, or embeddings."""
    import torch

    if isinstance(found, Mapping):
        name = next((key for key in kind.keys if key in found), None)
        if name is None:
            if kind is PROMPTS and not any(hasattr(each, "ndim") and each.ndim > 1 for each in found.values()):
                raise missing(kind, text)
            return found
        found = found[name]
    if kind is PROMPTS:
        return [each.decode() if isinstance(each, bytes) else str(each) for each in found]
    return torch.as_tensor(found).reshape(-1).long()


def _captions(folder: Path, kind: Kind) -> list[str] | None:
    """Return the captions of the images of a folder, in their order; None if no image has one."""
    if not os.path.isdir(folder):
        return None
    from ..statistics.files import image_paths

    files = [path.with_suffix(LONE) for path in image_paths(folder)]
    lacking = [path for path in files if not path.is_file()]
    if len(lacking) == len(files):
        return None
    if lacking:
        raise ValueError(
            f"{folder}: {len(lacking)} of {len(files)} images have no caption ({lacking[0].name!r:.80} is missing). Write one "
            f"for every image (an empty file is the empty prompt), or give {kind.ways}."
        )
    return [" ".join(read_text(path).split()) for path in files]


def _numbers(lines: list[str], path: Path) -> Any:
    import torch

    try:
        return torch.tensor([int(line) for line in lines])
    except ValueError as error:
        raise ValueError(f"{path}: labels must be whole numbers, one per line ({error}).") from error


def _matched(entries: Any, count: int, kind: Kind | None, given: str) -> Any:
    """Return one condition per sample; a single prompt is repeated for all."""
    found = count_of(entries)
    if kind is PROMPTS and found == 1 and isinstance(entries, list):
        return entries * count
    if isinstance(entries, Sized) and found != count:
        raise ValueError(
            f"--conditioning {given} has {found:,} entries, but DATA has {count:,} samples. Give one for each, in their order."
        )
    return entries
