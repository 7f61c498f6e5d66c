"""Stage 7. Many samples, or features of them, drawn in a stream of which a kill loses less than a minute.

For features, samples are never all in memory: each unit of them is turned into features at once, and only the first few
images are kept, to look at. A unit of a thousand steps takes minutes, so its state is also saved between steps. Samples are
identified by their number, so a larger set contains the smaller one, whoever computed which.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ..runs.identity import check_identity
from ..runs.storage import Arrays, DamagedFileError, read_arrays, read_whole, write_arrays
from ..runs.workers import current
from ..statistics.data import Samples, slice_conditioning
from ..statistics.probes import probe_on_noise
from .features.extractor import FeatureExtractor, to_levels
from .unit_store import BROKEN, FORMAT, Unit, UnitStore, Update

if TYPE_CHECKING:
    from ..denoiser import Denoiser

STATE_SECONDS = 20.0  # between two saves of a unit's state; finished units are saved by `Progress`


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """Features [n, d] of n images, and the first few of those images, uint8 [m, C, H, W]."""

    features: npt.NDArray[np.float32]
    images: npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Conditioning:
    """One entry for each sample to draw, and their fingerprint; both None for unconditional models."""

    entries: Any = None
    fingerprint: str | None = None

    @classmethod
    def of(cls, data: Samples, count: int) -> Conditioning:
        """Conditioning of ``data``, repeated for ``count`` samples."""
        if data.conditioning is None:
            return cls()
        return cls(data.take(i % len(data) for i in range(count)).conditioning, data.fingerprint)

    def of_unit(self, unit: Unit) -> Any:
        """The entries of one unit of samples."""
        first, count = unit
        return slice_conditioning(self.entries, slice(first, first + count))


UNCONDITIONAL = Conditioning()


class Walk(Protocol):
    """A chain as streams see it: it can be stopped between any two steps and resumed."""

    @property
    def denoiser(self) -> Denoiser:
        """The model."""

    @property
    def budget(self) -> int:
        """Number of steps."""

    def start(self, first: int, count: int) -> Tensor:
        """The state of samples first … first + count − 1 before the first step."""

    def advance(self, state: Tensor, step: int, first: int, conditioning: Any = None) -> Tensor:
        """Their state after step number ``step``."""

    def identity(self) -> dict[str, Any]:
        """Everything that its samples depend on besides the model, as JSON values."""


@dataclass(frozen=True, eq=False)
class Pictures:
    """Rules by which samples become images.

    Attributes:
        keep: number of images to keep, from the first.
        decode: samples → images; None if samples are images.
        value_range: image values of black and white.
    """

    keep: int = 64
    decode: Callable[[Tensor], Tensor] | None = None
    value_range: tuple[float, float] = (-1.0, 1.0)

    def of(self, x: Tensor) -> Tensor:
        """8-bit images of samples."""
        return to_levels((x if self.decode is None else self.decode(x.float())).float().cpu(), *self.value_range)


def sample_stream(
    chain: Walk,
    n: int,
    path: str | os.PathLike[str],
    write: Callable[[Tensor], None],
    *,
    batch_size: int = 64,
    conditioning: Conditioning = UNCONDITIONAL,
    update: Update = lambda evaluations: None,
    overwrite: bool = False,
) -> None:
    """Pass samples 0 … n − 1 of ``chain`` [n, *shape], float32, to ``write``, which writes them to ``path``.

    Until then, drawn samples are kept in a folder beside ``path``. The probes are run first, 33 evaluations. Helper
    processes of a launch write nothing. Work on other samples in that folder is refused, or removed with ``overwrite``.
    """
    behaviour = behaviour_of(chain, conditioning, n, batch_size)
    identity = {"kind": "samples to keep", "conditioning": conditioning.fingerprint} | identity_of(chain) | behaviour
    store = _store_of(chain, path, identity, update)
    if overwrite and current().main:
        store.give_up_others()

    def compute(unit: Unit) -> Arrays:
        return {"x": walk(chain, unit, conditioning, store).float().cpu().numpy()}

    def received(unit: Unit) -> None:
        update(unit[1] * chain.budget)

    store.collect(
        {}, n, batch_size, compute, received=received, write=lambda arrays: write(torch.from_numpy(arrays["x"]))
    )


def sample_features(
    chain: Walk,
    extractor: FeatureExtractor,
    n: int,
    path: str | os.PathLike[str],
    *,
    pictures: Pictures | None = None,
    batch_size: int = 64,
    conditioning: Conditioning = UNCONDITIONAL,
    update: Update = lambda evaluations: None,
) -> ImageFeatures | None:
    """Features of samples 0 … n − 1 of ``chain``, stored in ``path``; None in helper processes of a launch.

    Args:
        chain: from `Chain.along`, or another walk.
        extractor: the feature extractor.
        n: number of samples; those already in ``path`` are not drawn again.
        path: file to write, and to resume from.
        pictures: how samples become images.
        batch_size: samples per network pass.
        conditioning: one entry per sample.
        update: called with the number of network evaluations as they are made, for a progress bar.
    """
    pictures = pictures or Pictures()
    behaviour = behaviour_of(chain, conditioning, n, batch_size)
    identity = identity_of_samples(chain, extractor, pictures, conditioning) | behaviour
    store = _store_of(chain, path, identity, update)

    def compute(unit: Unit) -> Arrays:
        x = walk(chain, unit, conditioning, store)
        with store.alone:  # neither is known to be thread-safe
            images = pictures.of(x)
            return {"features": extractor(images), "images": images[: max(0, pictures.keep - unit[0])].numpy()}

    return collect_features(store, n, batch_size, compute, received=lambda unit: update(unit[1] * chain.budget))


def image_features(
    images: Tensor,
    extractor: FeatureExtractor,
    path: str | os.PathLike[str],
    *,
    keep: int = 64,
    batch_size: int = 64,
    update: Update = lambda images: None,
) -> ImageFeatures | None:
    """Features of real uint8 ``images`` [n, C, H, W], stored in ``path`` like those of samples."""
    digest = hashlib.sha256(f"{tuple(images.shape)}".encode())
    digest.update(images.contiguous().numpy().tobytes())
    identity = {
        "kind": "images",
        "images": digest.hexdigest()[:16],
        "extractor": extractor.describe(),
        "keep": keep,
        **extractor.behaviour(images),
    }

    def compute(unit: Unit) -> Arrays:
        first, count = unit
        part = images[first : first + count]
        return {"features": extractor(part), "images": part[: max(0, keep - first)].numpy()}

    store = UnitStore(Path(path), identity)
    return collect_features(store, len(images), batch_size, compute, received=lambda unit: update(unit[1]))


def identity_of_samples(
    chain: Walk, extractor: FeatureExtractor, pictures: Pictures, conditioning: Conditioning
) -> dict[str, Any]:
    """Identity by which `sample_features` recognises its work, without the model's behaviour, which takes network passes."""
    identity = identity_of(chain) | {
        "kind": "samples",
        "conditioning": conditioning.fingerprint,
        "extractor": extractor.describe(),
        "keep": pictures.keep,
    }
    other_range = pictures.value_range != (-1.0, 1.0)
    return identity | {"value_range": list(pictures.value_range)} if other_range else identity


def identity_of(chain: Walk) -> dict[str, Any]:
    """Everything that samples depend on; reads every weight."""
    return {"model": chain.denoiser.describe()} | chain.identity()


def check_features(path: str | os.PathLike[str], identity: dict[str, Any]) -> None:
    """Refuse a file of other work, from its header alone; a missing or damaged file is ignored here."""
    from safetensors import SafetensorError, safe_open

    there = None
    with suppress(SafetensorError, OSError, *BROKEN), safe_open(os.fspath(path), "numpy") as file:
        there = json.loads(file.metadata()["identity"])
    if isinstance(there, dict):
        folder = Path(path).parent
        check_identity(path, there, json.loads(json.dumps(identity)), f"Give another output, or remove {folder}.")


def load_features(path: str | os.PathLike[str]) -> ImageFeatures:
    """Read the result of a finished stream from ``path``."""
    arrays, _ = _read(Path(path))
    return ImageFeatures(arrays["features"], arrays["images"])


def _store_of(chain: Walk, path: str | os.PathLike[str], identity: dict[str, Any], update: Update) -> UnitStore:
    denoiser = chain.denoiser
    return UnitStore(Path(path), identity, denoiser.at_once, update, hands_over=denoiser.waits)


def collect_features(
    store: UnitStore, n: int, size: int, compute: Callable[[Unit], Arrays], received: Callable[[Unit], object]
) -> ImageFeatures | None:
    """Resume from the features in the file, if it exists; a file of other work is refused."""
    done: dict[Unit, Arrays] = {}
    if current().main and (found := read_whole(store.path, _read)) is not None:
        arrays, header = found
        store.identity = check_identity(store.path, json.loads(header["identity"]), store.identity)
        done = {(0, len(arrays["features"])): arrays}

    def write(arrays: Arrays) -> None:
        write_arrays(store.path, arrays, {"format": FORMAT, "identity": json.dumps(store.identity)})

    whole = store.collect(done, n, size, compute, received=received, write=write)
    return None if whole is None else ImageFeatures(whole["features"], whole["images"])


def behaviour_of(chain: Walk, conditioning: Conditioning, n: int, batch_size: int) -> dict[str, Any]:
    """The part of an identity that comes from the probes; an error there in one process ends the work of all."""
    with current().telling():
        return {"behaviour": probe_on_noise(chain.denoiser, conditioning.entries, n, batch_size).behaviour.to_dict()}


def walk(chain: Walk, unit: Unit, conditioning: Conditioning, store: UnitStore) -> Tensor:
    """The samples of a unit; its state is saved regularly, and resumed from."""
    (first, count), condition, found = unit, conditioning.of_unit(unit), store.recall(unit)
    step, x = (0, chain.start(first, count)) if found is None else (found[0], found[1].to(chain.denoiser.device))
    store.update(step * count)
    written = time.monotonic()
    while step < chain.budget:
        x = chain.advance(x, step, first, condition)
        step += 1
        store.update(count)
        if step < chain.budget and (store.stopped.is_set() or time.monotonic() - written > STATE_SECONDS):
            store.remember(unit, step, x)
            written = time.monotonic()
            if store.stopped.is_set():
                raise CancelledError
    return x


def _read(path: Path) -> tuple[Arrays, dict[str, str]]:
    try:
        arrays, header = read_arrays(path)
        if header.get("format") != FORMAT or not {"features", "images"} <= arrays.keys():
            raise DamagedFileError(f"its format is {header.get('format')!r:.80}, not {FORMAT!r}")
        if not isinstance(json.loads(header.get("identity", "null")), dict):
            raise DamagedFileError("it does not record its identity")
        if arrays["features"].ndim != 2 or arrays["features"].dtype.kind != "f":
            raise DamagedFileError(f"its features have shape {arrays['features'].shape}, not [images, numbers]")
    except (DamagedFileError, OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: not features that dpstride wrote ({error!s:.300}). Remove it to compute them again."
        ) from error
    return arrays, header
