"""Stage 7. Many samples, or features of them, drawn in a stream that any kill costs less than a minute of.

For features, samples are never all in memory: each unit of them becomes features at once, and only the first few images
are kept, to look at. A unit of a thousand steps takes minutes, so that its state is written down between steps too. Samples
are named by their number, so more of them are the same ones and more, whoever computed which.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from .. import variances
from ..runs.identity import OtherWorkError, check_identity
from ..runs.progress import Progress
from ..runs.storage import Arrays, DamagedFileError, is_replaceable, read_arrays, write_arrays
from ..runs.workers import current
from ..statistics.data import slice_conditioning
from ..statistics.probes import probe_on_noise
from .features.extractor import FeatureExtractor, to_levels
from .sampling import Chain

FORMAT = "dpstride-features-1"
STATE_SECONDS = 20.0  # between two writings of a unit's state; a unit's end is written by `Progress`
STATES = "state-*.safetensors"
BROKEN = (KeyError, TypeError, ValueError, RecursionError)  # of a header that is none of ours
Unit = tuple[int, int]  # the first sample, and the number of them
Update = Callable[[int], object]


@dataclass(frozen=True, eq=False)
class ImageFeatures:
    """Features [n, d] of n images, and the first few of those images, uint8 [m, C, H, W]."""

    features: npt.NDArray[np.float32]
    images: npt.NDArray[np.uint8]


def sample_stream(
    chain: Chain,
    n: int,
    path: str | os.PathLike[str],
    write: Callable[[Tensor], None],
    *,
    batch_size: int = 64,
    conditioning: Any = None,
    conditioning_fingerprint: str | None = None,
    update: Update = lambda evaluations: None,
    overwrite: bool = False,
) -> None:
    """Hand samples 0 … n − 1 of ``chain`` [n, *shape], float32, to ``write``, which puts them into ``path``.

    Until it has, what is drawn is kept in a folder beside ``path``. First the probes are passed, 29 evaluations. Helping
    processes of a launch write nothing. What is kept there of other samples is refused, or with ``overwrite`` given up.
    """
    behaviour = _behaviour_of(chain, conditioning, n, batch_size)
    identity = {"kind": "samples to keep", "conditioning": conditioning_fingerprint} | _identity_of(chain) | behaviour
    store = _Store(Path(path), identity, chain.denoiser.at_once, update)
    if overwrite and current().main:
        store.give_up_others()

    def compute(unit: Unit) -> Arrays:
        first, count = unit
        condition = slice_conditioning(conditioning, slice(first, first + count))
        return {"x": _walk(chain, first, count, condition, store=store).float().cpu().numpy()}

    def received(unit: Unit) -> None:
        update(unit[1] * chain.budget)

    store.collect(
        {}, n, batch_size, compute, received=received, write=lambda arrays: write(torch.from_numpy(arrays["x"]))
    )


def sample_features(
    chain: Chain,
    extractor: FeatureExtractor,
    n: int,
    path: str | os.PathLike[str],
    *,
    keep: int = 64,
    batch_size: int = 64,
    decode: Callable[[Tensor], Tensor] | None = None,
    value_range: tuple[float, float] = (-1.0, 1.0),
    conditioning: Any = None,
    conditioning_fingerprint: str | None = None,
    update: Update = lambda evaluations: None,
) -> ImageFeatures | None:
    """Features of samples 0 … n − 1 of ``chain``, kept in ``path``; None in helping processes of a launch.

    Args:
        chain: from `Chain.along`.
        extractor: what gives the features.
        n: number of samples; those that ``path`` holds already are not drawn again.
        path: file to write, and to go on from.
        keep: images to keep, the first ones.
        batch_size: samples per network pass.
        decode: samples → images, None where they are that.
        value_range: values of images that are black and white.
        conditioning: one entry per sample.
        conditioning_fingerprint: what tells it from other conditioning, for the record.
        update: told the network evaluations as they are made, for a progress bar.
    """
    behaviour = _behaviour_of(chain, conditioning, n, batch_size)
    identity = (
        identity_of_samples(chain, extractor, keep, value_range, conditioning_fingerprint=conditioning_fingerprint)
        | behaviour
    )
    store = _Store(Path(path), identity, chain.denoiser.at_once, update)

    def compute(unit: Unit) -> Arrays:
        first, count = unit
        condition = slice_conditioning(conditioning, slice(first, first + count))
        x = _walk(chain, first, count, condition, store=store)
        with store.alone:  # neither has said that threads may call it
            images = to_levels((x if decode is None else decode(x.float())).float().cpu(), *value_range)
            return {"features": extractor(images), "images": images[: max(0, keep - first)].numpy()}

    return _collect_features(store, n, batch_size, compute, received=lambda unit: update(unit[1] * chain.budget))


def image_features(
    images: Tensor,
    extractor: FeatureExtractor,
    path: str | os.PathLike[str],
    *,
    keep: int = 64,
    batch_size: int = 64,
    update: Update = lambda images: None,
) -> ImageFeatures | None:
    """Features of real uint8 ``images`` [n, C, H, W], kept in ``path`` as samples' are."""
    digest = hashlib.sha256(f"{tuple(images.shape)}".encode())
    digest.update(images.contiguous().numpy().tobytes())
    identity = {
        "kind": "images",
        "images": digest.hexdigest()[:16],
        "extractor": extractor.describe(),
        "keep": keep,
    }

    def compute(unit: Unit) -> Arrays:
        first, count = unit
        part = images[first : first + count]
        return {"features": extractor(part), "images": part[: max(0, keep - first)].numpy()}

    store = _Store(Path(path), identity)
    return _collect_features(store, len(images), batch_size, compute, received=lambda unit: update(unit[1]))


def identity_of_samples(
    chain: Chain,
    extractor: FeatureExtractor,
    keep: int,
    value_range: tuple[float, float] = (-1.0, 1.0),
    conditioning_fingerprint: str | None = None,
) -> dict[str, Any]:
    """Identity by which `sample_features` recognises its work, without the model's behaviour, which takes network passes."""
    identity = _identity_of(chain) | {
        "kind": "samples",
        "conditioning": conditioning_fingerprint,
        "extractor": extractor.describe(),
        "keep": keep,
    }
    return identity if value_range == (-1.0, 1.0) else identity | {"value_range": list(value_range)}


def check_features(path: str | os.PathLike[str], identity: dict[str, Any]) -> None:
    """Refuse a file of other work, from its header alone; one that is not there, or damaged, is no matter yet."""
    from safetensors import SafetensorError, safe_open

    there = None
    with suppress(SafetensorError, OSError, *BROKEN), safe_open(os.fspath(path), "numpy") as file:
        there = json.loads(file.metadata()["identity"])
    if isinstance(there, dict):
        folder = Path(path).parent
        check_identity(path, there, json.loads(json.dumps(identity)), f"Give another output, or remove {folder}.")


def load_features(path: str | os.PathLike[str]) -> ImageFeatures:
    """Read what a finished stream left in ``path``."""
    arrays, _ = _read(Path(path))
    return ImageFeatures(arrays["features"], arrays["images"])


def _collect_features(
    store: _Store, n: int, size: int, compute: Callable[[Unit], Arrays], received: Callable[[Unit], object]
) -> ImageFeatures | None:
    """Go on from the features that the file holds, if it is there; a file of other work is refused."""
    done: dict[Unit, Arrays] = {}
    if current().main and store.path.is_file():
        try:
            arrays, header = _read(store.path)
        except ValueError as error:
            if not is_replaceable(store.path, error):
                raise
        else:
            store.identity = check_identity(store.path, json.loads(header["identity"]), store.identity)
            done = {(0, len(arrays["features"])): arrays}

    def write(arrays: Arrays) -> None:
        write_arrays(store.path, arrays, {"format": FORMAT, "identity": json.dumps(store.identity)})

    found = store.collect(done, n, size, compute, received=received, write=write)
    return None if found is None else ImageFeatures(found["features"], found["images"])


def _behaviour_of(chain: Chain, conditioning: Any, n: int, batch_size: int) -> dict[str, Any]:
    """The part of an identity that the probes give; what is wrong with them in one process ends the work of all."""
    try:
        return {"behaviour": probe_on_noise(chain.denoiser, conditioning, n, batch_size).behaviour.to_dict()}
    except BaseException as error:
        current().fail(error)
        raise


def _identity_of(chain: Chain) -> dict[str, Any]:
    """All that samples depend on."""
    return {
        "model": chain.denoiser.describe(),
        "process": chain.denoiser.process.fingerprint,
        "steps": list(chain.steps),
        "variance": chain.variance if chain.rule.takes_variance else None,
        "fitted": _fitted_of(chain),
        "sampler": chain.sampler,
        "eta": chain.eta,
        "seed": chain.seed,
        "shape": list(chain.denoiser.shape or ()),
    }


def _fitted_of(chain: Chain) -> str | None:
    """Digest of the fitted numbers on which the noise of a path depends."""
    fit = variances.find(chain.variance).fit
    if fit is None or getattr(chain.fitted, fit.numbers) is None:
        return None
    numbers = chain.fitted.of(fit)[list(chain.steps[:-1])]
    return hashlib.sha256(np.ascontiguousarray(numbers).tobytes()).hexdigest()[:16]


# --- keeping what is done -----------------------------------------------------------------------------------------------


class _Store:
    """One file of results, and beside it a folder with the finished units and the states of unfinished ones.

    Units are computed ``at_once`` at a time, each in a thread; when one fails, the others write down where they are.
    """

    def __init__(
        self, path: Path, identity: dict[str, Any], at_once: int = 1, update: Update = lambda items: None
    ) -> None:
        self.path, self.identity = path, json.loads(json.dumps(identity))
        self.folder = path.with_name(f"{path.name}.progress")
        self.at_once, self._update = at_once, update
        self.alone, self.stopped = threading.Lock(), threading.Event()

    def update(self, items: int) -> None:
        """Tell of progress, one thread after the other."""
        with self.alone:
            self._update(items)

    def give_up_others(self) -> None:
        """Remove what is kept of other work."""
        try:
            Progress(self.folder, self.identity).close()
        except OtherWorkError:
            shutil.rmtree(self.folder)

    def collect(
        self,
        done: dict[Unit, Arrays],
        n: int,
        size: int,
        compute: Callable[[Unit], Arrays],
        received: Callable[[Unit], object],
        write: Callable[[Arrays], None],
    ) -> Arrays | None:
        """Compute what is missing of items 0 … n − 1 and write the whole; None in helping processes.

        Args:
            done: what there is already.
            n: number of items.
            size: items per unit.
            compute: the arrays of a unit, items first.
            received: told of units that were done elsewhere.
            write: writes the whole into the file.
        """
        workers = current()
        workers.agree(self.identity)
        if workers.share(sum(count for _, count in done) >= n if workers.main else None):
            return _joined(done, n) if workers.main else None
        own: set[Unit] = set()

        def compute_own(unit: Unit) -> Arrays:
            own.add(unit)
            return compute(unit)

        if not workers.main:
            for _ in workers.map(compute_own, [tuple(unit) for unit in workers.share(None)]):
                pass
            return None
        with Progress(self.folder, self.identity) as progress:
            self.identity = progress.identity
            done |= {_unit_of(key): arrays for key, arrays in progress.read()}
            missing = workers.share(_missing(done, n, size))
            units = [(first, count) for first, count in missing]
            for unit, arrays in workers.map(compute_own, units, self.at_once, self.stopped.set):
                progress.write(f"{unit[0]} {unit[1]}", arrays)
                if self._state_of(unit).exists():  # minutes of work, which must not wait for the next writing
                    progress.flush()
                    self.forget(unit)
                done[unit] = arrays
                if unit not in own:
                    received(unit)
            result = _joined(done, n)
            write(result)
            for state in self.folder.glob(STATES):  # of units that another batch size cut otherwise
                state.unlink()
            progress.remove()
        return result

    # --- the state of a unit between two steps

    def remember(self, unit: Unit, step: int, x: Tensor) -> None:
        """Write down the state before ``step``, if there is a folder for it (not so on a helper's own machine)."""
        if self.folder.is_dir():
            header = {"format": FORMAT, "identity": json.dumps(self.identity), "step": str(step)}
            write_arrays(self._state_of(unit), {"x": x.cpu().numpy()}, header)

    def recall(self, unit: Unit) -> tuple[int, Tensor] | None:
        """The step to go on with, and its state."""
        path = self._state_of(unit)
        if not path.is_file():
            return None
        with suppress(DamagedFileError, *BROKEN):
            arrays, header = read_arrays(path)
            check_identity(path, json.loads(header["identity"]), self.identity)
            return int(header["step"]), torch.from_numpy(arrays["x"])
        self.forget(unit)
        return None

    def forget(self, unit: Unit) -> None:
        """The unit is finished, or its state is worth nothing."""
        self._state_of(unit).unlink(missing_ok=True)

    def _state_of(self, unit: Unit) -> Path:
        return self.folder / STATES.replace("*", f"{unit[0]}-{unit[1]}")


def _walk(chain: Chain, first: int, count: int, conditioning: Any, store: _Store) -> Tensor:
    """The samples of a unit; its state is written down every so often and found again."""
    found = store.recall((first, count))
    step, x = (0, chain.start(first, count)) if found is None else (found[0], found[1].to(chain.denoiser.device))
    store.update(step * count)
    written = time.monotonic()
    while step < chain.budget:
        x = chain.advance(x, step, first, conditioning)
        step += 1
        store.update(count)
        if step < chain.budget and (store.stopped.is_set() or time.monotonic() - written > STATE_SECONDS):
            store.remember((first, count), step, x)
            written = time.monotonic()
            if store.stopped.is_set():
                raise CancelledError
    return x


def _joined(done: dict[Unit, Arrays], n: int) -> Arrays:
    """The first n items of every array, in order; names too, which a file gives back in any order."""
    order = sorted(done)
    return {name: np.concatenate([done[unit][name] for unit in order])[:n] for name in sorted(done[order[0]])}


def _missing(done: dict[Unit, Arrays], n: int, size: int) -> list[Unit]:
    """Units of at most ``size`` that cover what is not done of 0 … n − 1."""
    have = np.zeros(n, dtype=bool)
    for first, count in done:
        have[first : first + count] = True
    units: list[Unit] = []
    for first in np.flatnonzero(~have).tolist():
        if units and first == sum(units[-1]) and units[-1][1] < size:
            units[-1] = (units[-1][0], units[-1][1] + 1)
        else:
            units.append((first, 1))
    return units


def _unit_of(key: str) -> Unit:
    first, count = key.split()
    return int(first), int(count)


def _read(path: Path) -> tuple[Arrays, dict[str, str]]:
    try:
        arrays, header = read_arrays(path)
        if header.get("format") != FORMAT or not {"features", "images"} <= arrays.keys():
            raise DamagedFileError(f"its format is {header.get('format')!r:.80}, not {FORMAT!r}")
        if not isinstance(json.loads(header.get("identity", "null")), dict):
            raise DamagedFileError("it does not say what it holds")
        if arrays["features"].ndim != 2 or arrays["features"].dtype.kind != "f":
            raise DamagedFileError(f"its features have shape {arrays['features'].shape}, not [images, numbers]")
    except (DamagedFileError, OSError, ValueError, RecursionError) as error:
        raise ValueError(
            f"{path}: not features that dpstride wrote ({error!s:.300}). Remove it to compute them again."
        ) from error
    return arrays, header
