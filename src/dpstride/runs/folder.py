"""Results of other runs in a folder: all are found before the first network pass, and refused or removed.

A run writes run.json first. It holds the run's identity (`Run.identity`), and every later result carries the run's id
(`Run.id`). A folder with anything from another model, other data, other options or another program is refused; with
--overwrite such results are removed. Statistics are kept and reused if that gives the same results as a new folder: those
of the same model, data and seed at exactly the steps that the run needs, if these are known beforehand.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..options import DEFAULT_OBJECTIVE
from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from .entries import check_entries
from .identity import differences
from .lock import Lock
from .progress import progress_folder
from .record import Run
from .storage import DamagedFileError, is_remnant, read_arrays, read_header
from .workers import current
from .writing import remove_leftovers

SCHEDULES, COMPARISON, RECORD = "schedules.json", "comparison.json", "run.json"
ENDPOINTS, CHECK, RACE = "endpoints.json", "check.json", "race.json"
# Results that hold the id of their run, besides schedules.json, which has it in its provenance.
NAMED = (COMPARISON, "adaptive.json", "front.json", ENDPOINTS, CHECK, RACE, "results.json")
RESULTS = (
    SCHEDULES, RECORD, *NAMED, "ablation.json", "table.txt", "tables.txt", "tables.md", "tables.tex", "report.html",
    "bits_per_dim.*g", "timesteps.*g", "front.*g", "bits_per_token.*g", "rounds.*g", "samples_*_steps*.png",
    "samples_real.png", "distances.*g",
    "figures/*.svg", "figures/*.png",
    "features/distances.json", "features/*.safetensors", "features/*.safetensors.progress",
    "draws/*.safetensors", "draws/*.safetensors.progress",
)  # fmt: skip
STATISTICS = ("statistics.safetensors", "heldout.safetensors", "trajectory.safetensors")
OURS = (
    *RESULTS,
    *STATISTICS,
    *(f"{name}.progress" for name in STATISTICS),
)  # everything that verbs write into a folder
NOTES_ONLY = ("check",)  # options that change the notes of a result but no number in it
VERB_OF = {
    "results.json": "study",
    "front.json": "find --objective mixed",
    "endpoints.json": "find --objective trajectory",
    RACE: "tune",
}


class OtherRunError(ValueError):
    """The output holds something that this run would mix with its own results or overwrite."""


@contextmanager
def claimed(output: Path, lock: Callable[[Path], Lock] = Lock) -> Iterator[None]:
    """Hold the lock of an output; only the main process of a launch takes it, and tells the others if it is refused."""
    workers = current()
    if not workers.main:
        yield
        return
    with workers.telling(), lock(output) as taken:
        if taken.folder == output:
            check_entries(output, OURS)
        for folder in (taken.folder, *(taken.folder / name for name in ("features", "figures", "draws"))):
            remove_leftovers(folder)
        yield
        taken.check()


@dataclass(frozen=True)
class Needed:
    """Statistics that a run needs: their identity, and the grid ``indices`` to evaluate if known beforehand."""

    identity: dict[str, Any]
    indices: Sequence[int] | None = None
    skip_nonfinite: bool = False


def begin(output: Path, run: Run, statistics: Mapping[str, Needed], overwrite: bool) -> None:
    """Refuse or clear a folder that holds other runs, and write run.json; only the main process of a launch does.

    Args:
        output: the folder, locked.
        run: the run about to start.
        statistics: the statistics that it needs, by the names of their files.
        overwrite: remove results of other runs.
    """
    if not current().main:
        return
    found = [*_other_results(output, run)]
    found += [each for name, needed in statistics.items() for each in other_statistics(output / name, needed)]
    check(output, found, overwrite)
    if found:
        there = _record(output / RECORD)
        same_model = there is not None and there.identity.get("model") == run.identity["model"]
        same_numbers = there is not None and _without_notes(there.identity) == _without_notes(run.identity)
        _clear(output, statistics if same_model else {}, anywhere=same_numbers)
    for name in NAMED:  # damaged files, which are about to be written again
        if _run_of(output / name) != run.id:
            (output / name).unlink(missing_ok=True)
    run.save(output)


def claim_statistics(path: Path, needed: Needed, overwrite: bool) -> None:
    """Do the same as `begin` for an output that is a single file of statistics."""
    if current().main and (found := list(other_statistics(path, needed, weights=overwrite))):
        check(path, found, overwrite)
        discard(path)


def claim_schedules(path: Path, options: Mapping[str, Any], provenance: Mapping[str, Any], overwrite: bool) -> None:
    """Refuse to replace a file other than schedules of the same origin and options, unless ``overwrite`` allows it."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    found = []
    if _is_foreign(path, damaged=True):
        found = [f"{path.name}: not a file of dpstride"]
    else:
        with suppress(UnreadableFileError):  # a damaged one of ours is written again
            document = read_json_object(path)
            there = {part: dict(mapping(document.get(part))) for part in ("options", "provenance")}
            found = differences(there, {"options": dict(options), "provenance": dict(provenance)})
    check(path, found, overwrite)


def check(output: Path, found: list[str], overwrite: bool) -> None:
    """Refuse an output with conflicts, unless it may be overwritten."""
    if found and not overwrite:
        raise OtherRunError(
            f"{output} holds other work: {'; '.join(found)}. Give another output with -o, or --overwrite to replace it; "
            "statistics of the same model, data, seed and steps are reused."
        )


# --- what is there -------------------------------------------------------------------------------------------------------


def _other_results(output: Path, run: Run) -> Iterator[str]:
    there = _record(output / RECORD)
    different = [] if there is None else differences(there.identity, run.identity)
    if different and any(path.name != RECORD for pattern in OURS for path in output.glob(pattern)):
        yield f"{RECORD}: {', '.join(different)}"
        return
    for name in (SCHEDULES, *NAMED):
        path = output / name
        if not path.is_file():
            continue
        if _is_foreign(path):
            yield f"{name}: not a file of dpstride"
        elif there is None and name == SCHEDULES and (different := _other_schedules(path, run)):
            yield f"{name}: {', '.join(different)}"
        elif there is None and name in VERB_OF and VERB_OF[name] != run.verb:
            yield f"{name}: a result of `dpstride {VERB_OF[name]}`"
        elif name in NAMED and (other := _run_of(path)) not in (None, run.id):
            yield f"{name}: of another run ({other!r:.40})"


def _record(path: Path) -> Run | None:
    """Return the record of the run that made the folder, if it has an identity (from version 0.2 on)."""
    with suppress(UnreadableFileError, OSError):
        found = Run.load(path) if path.is_file() else None
        return found if found is not None and found.identity else None
    return None


def _without_notes(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity of a run without options that change only its notes."""
    options = {name: value for name, value in mapping(identity.get("options")).items() if name not in NOTES_ONLY}
    return {**identity, "options": options}


def _run_of(path: Path) -> str | None:
    """Return the id of the run that wrote a result; None if it has none, is damaged or does not exist."""
    with suppress(UnreadableFileError, OSError):
        return read_json_object(path).get("run") if path.is_file() else None
    return None


def _is_foreign(path: Path, damaged: bool = False) -> bool:
    """Return whether a JSON file is not ours; ``damaged`` is the answer for one that cannot be read."""
    with path.open("rb") as file:
        if b'"format": "dpstride-' in file.read(100):
            return False
    with suppress(UnreadableFileError):
        return not str(read_json_object(path).get("format")).startswith("dpstride-")
    return damaged


def _other_schedules(path: Path, run: Run) -> list[str]:
    """Describe how schedules without a record differ from this run's, as far as they tell."""
    try:
        document = read_json_object(path)
    except UnreadableFileError:
        return []
    options, made = (mapping(document.get(part)) for part in ("options", "provenance"))
    names = [name for name in ("variance", "decoder", "sampler", "lambda") if name in run.options]
    there: dict[str, Any] = {"objective": options.get("objective", DEFAULT_OBJECTIVE), "seed": made.get("seed")}
    here: dict[str, Any] = {"objective": run.identity["objective"], "seed": run.identity["seed"]}
    there |= {name: options.get(name) for name in names}
    here |= {name: run.options[name] for name in names}
    for part in ("model", "data"):
        there[part] = {"fingerprint": made[part].get("fingerprint")} if isinstance(made.get(part), Mapping) else None
        here[part] = {"fingerprint": run.identity[part]["fingerprint"]}
    known = [name for name, value in there.items() if value is not None]
    return differences({name: there[name] for name in known}, {name: here[name] for name in known})


def mapping(value: object) -> Mapping[str, Any]:
    """Return ``value``, read from a file, if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def other_statistics(path: Path, needed: Needed, weights: bool = False) -> Iterator[str]:
    """Describe statistics, finished or not, of other work than is needed; only headers are read.

    The digest of the weights is compared with ``weights`` only: statistics have the digest of a network that has run, and a
    network may create tensors in its first pass. `estimate` compares it again after the probes.
    """
    expected = json.loads(json.dumps(needed.identity))
    progress = progress_folder(path)
    for each in (path, *sorted(progress.glob("*.safetensors"))[:1]):
        if not each.is_file():
            continue
        shown = path.name if each == path else progress.name
        try:
            header = read_header(each)
            there = json.loads(header["metadata"] if "metadata" in header else header["identity"])
            different = differences(_comparable(there, expected), _comparable(expected, there))
            different = [each for each in different if weights or not each.startswith("model.fingerprint ")]
            if "data" in there and there["data"].get("skipped") and not needed.skip_nonfinite:
                different.append(f"{len(there['data']['skipped'])} samples skipped there")
        except (DamagedFileError, OSError, KeyError, ValueError, TypeError, AttributeError):
            if not is_remnant(each):
                yield f"{shown}: not a file of dpstride"
            continue
        if different:
            yield f"{shown}: {', '.join(different)}"


def _comparable(identity: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the facts that both identities state, without the model's name and skipped samples."""
    found: dict[str, Any] = {}
    for name in ("process", "model", "data", "data_range", "seed", "version", "teacher", "samples"):
        value: Any = identity.get(name)
        theirs: Any = other.get(name)
        if type(value) is type(theirs) and value is not None:
            found[name] = value
            if isinstance(value, dict):
                found[name] = {key: value[key] for key in value.keys() & theirs.keys() - {"name", "skipped"}}
    if isinstance(identity.get("data"), dict) and (skipped := identity["data"].get("skipped")):
        found["data"]["samples"] += len(skipped)
    return found


# --- clearing it away -----------------------------------------------------------------------------------------------------


def _clear(output: Path, statistics: Mapping[str, Needed], anywhere: bool) -> None:
    """Remove results of other runs, and statistics that this one cannot use; files not from dpstride are kept.

    Statistics must be at exactly the indices that are needed, unless they may be ``anywhere``, as for the same numbers.
    """
    for pattern in RESULTS:
        for path in output.glob(pattern):
            _remove(path)
    for name in STATISTICS:
        path, needed = output / name, statistics.get(name)
        usable = needed is not None and not any(other_statistics(path, needed))
        if needed is None or not usable or not (anywhere or _is_evaluated_at(path, needed.indices)):
            discard(path)


def _is_evaluated_at(path: Path, indices: Sequence[int] | None) -> bool:
    """Return whether statistics are whole and evaluated at exactly these indices; a teacher's tables always are."""
    if path.name == "trajectory.safetensors":
        return True
    try:
        evaluated = read_arrays(path)[0]["evaluated"]
    except (DamagedFileError, OSError, KeyError):
        return False
    return indices is not None and evaluated.nonzero()[0].tolist() == list(indices)


def discard(path: Path) -> None:
    """Remove a file and its saved progress."""
    _remove(path)
    _remove(progress_folder(path))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
