"""Stage 9. What a results folder holds of other runs: found before the first network pass, all of it, or cleared away.

A run writes run.json first. It says what the run is (`Run.identity`), and every result that follows carries its name
(`Run.id`). A folder in which something is of another model, other data, other options or no run of dpstride at all is
refused; with --overwrite such results go. Statistics stay, to be used again, where that gives what a new folder would
get: those of the same model, data and seed at the very steps that the run needs, if these are known before it begins.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from ..runs.identity import differences

if TYPE_CHECKING:
    from ..denoiser import Denoiser
    from ..report.page.run import Run
    from ..schedule import ScheduleSet
    from ..statistics.data import Samples

SCHEDULES, RECORD = "schedules.json", "run.json"
# Results with the name of their run inside, besides schedules.json, which has it in its provenance.
NAMED = ("comparison.json", "adaptive.json", "front.json", "endpoints.json", "results.json")
RESULTS = (
    SCHEDULES, RECORD, *NAMED, "ablation.json", "table.txt", "tables.txt", "tables.md", "tables.tex", "report.html",
    "bits_per_dim.*g", "timesteps.*g", "front.*g", "samples_*_steps*.png", "figures/*.svg", "figures/*.png",
    "features/distances.json", "features/*.safetensors", "features/*.safetensors.progress",
)  # fmt: skip
STATISTICS = ("statistics.safetensors", "heldout.safetensors", "trajectory.safetensors")
OF_VERBS = {
    "results.json": "study",
    "front.json": "find --objective mixed",
    "endpoints.json": "find --objective trajectory",
}


class OtherRunError(ValueError):
    """The output holds something that this run would mix with its own results, or write over."""


def begin(output: Path, run: Run, statistics: Mapping[str, dict[str, Any]], overwrite: bool) -> None:
    """Refuse a folder that holds other runs, or clear it, and write run.json; only the main process of a launch does.

    Args:
        output: the folder, locked.
        run: what is about to be run.
        statistics: identities of the statistics that it needs, by the names of their files.
        overwrite: clear the folder of other runs.
    """
    from ..statistics.workers import current

    if not current().main:
        return
    found = [*_other_results(output, run)]
    found += [each for name, identity in statistics.items() for each in _other_statistics(output / name, identity)]
    check(output, found, overwrite)
    if found:
        there = _record(output / RECORD)
        same_model = there is not None and there.identity.get("model") == run.identity["model"]
        _clear(output, statistics if same_model else {})
    for name in NAMED:  # damaged ones, which are about to be written again
        if _run_of(output / name) != run.id:
            (output / name).unlink(missing_ok=True)
    run.save(output)


def claim_statistics(path: Path, identity: dict[str, Any], overwrite: bool) -> None:
    """The same for one file of statistics, which is the whole output."""
    from ..statistics.workers import current

    if current().main and (found := list(_other_statistics(path, identity, weights=overwrite))):
        check(path, found, overwrite)
        discard(path)


def check(output: Path, found: list[str], overwrite: bool) -> None:
    """Refuse an output with conflicts, unless it may be overwritten."""
    if found and not overwrite:
        raise OtherRunError(
            f"{output} holds other work: {'; '.join(found)}. Give another output with -o, or --overwrite, which replaces "
            "these; statistics of the same model, data, seed and steps are used again."
        )


def named(schedules: ScheduleSet, run: Run | None) -> ScheduleSet:
    """The schedules with the name of their run."""
    from dataclasses import replace

    return schedules if run is None else replace(schedules, provenance={**schedules.provenance, "run": run.id})


def identity_of_run(
    verb: str,
    objective: str,
    denoiser: Denoiser,
    choosing: Samples,
    scoring: Samples,
    seed: int,
    options: dict[str, Any],
) -> dict[str, Any]:
    """Everything that the results of a run depend on, without what paths, machines and batches happen to be."""
    from .. import __version__

    return {
        "verb": verb,
        "objective": objective,
        "model": identity_of_model(denoiser),
        "data": identity_of_data(choosing),
        "heldout": identity_of_data(scoring),
        "seed": seed,
        "options": options,
        "version": __version__,
    }


def cost_options(denoiser: Denoiser, variance: str | None, decoder: str, max_budget: int | None) -> dict[str, Any]:
    """Options of costs as they are meant: left out, a variance is the model's own, and a budget the grid's."""
    from ..costs.elbo import check_options

    chosen = check_options(denoiser.process, denoiser.variance, variance, decoder)
    most = denoiser.process.T if max_budget is None else max_budget
    return {"variance": chosen["variance"], "decoder": decoder, "max_budget": most}


def identity_of_data(samples: Samples) -> dict[str, Any]:
    """By which data are known again."""
    return {"fingerprint": samples.fingerprint, "samples": len(samples), "range": samples.data_range.describe()}


def identity_of_model(denoiser: Denoiser) -> dict[str, Any]:
    """By which a model is known again, whatever it is called. Ask before it runs, which may change its own values."""
    described = {name: value for name, value in denoiser.describe().items() if name != "name"}
    return described | {"process": denoiser.process.fingerprint}


def statistics_identity(run: Run, part: str, seed: int, steps: Iterable[int] | None) -> dict[str, Any]:
    """The identity of a run's statistics of its "data" or "heldout" data, and the ``steps`` it needs, if they are known."""
    model, data = dict(run.identity["model"]), run.identity[part]
    return {
        "process": model.pop("process"),
        "model": model,
        "data": {"fingerprint": data["fingerprint"], "samples": data["samples"]},
        "data_range": data["range"],
        "seed": seed,
        "version": run.identity["version"],
        "skip_nonfinite": run.options.get("skip_nonfinite", False),
        "steps": None if steps is None else list(steps),
    }


# --- what is there -------------------------------------------------------------------------------------------------------


def _other_results(output: Path, run: Run) -> Iterator[str]:
    there = _record(output / RECORD)
    different = [] if there is None else differences(there.identity, run.identity)
    if different and any(path.name != RECORD for path in _belongings(output)):
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
        elif there is None and name in OF_VERBS and OF_VERBS[name] != run.verb:
            yield f"{name}: a result of `dpstride {OF_VERBS[name]}`"
        elif name in NAMED and (other := _run_of(path)) not in (None, run.id):
            yield f"{name}: of another run ({other!r:.40})"


def _record(path: Path) -> Run | None:
    """The record of the run that made the folder, if it says what it was (from version 0.2 on)."""
    from ..report.page.run import Run

    with suppress(UnreadableFileError, OSError):
        found = Run.load(path)
        return found if found.identity else None
    return None


def _belongings(output: Path) -> Iterator[Path]:
    for pattern in (*RESULTS, *STATISTICS, *(f"{name}.progress" for name in STATISTICS)):
        yield from output.glob(pattern)


def _run_of(path: Path) -> str | None:
    """The name of the run that wrote a result; None of one that has none, is damaged or not there."""
    with suppress(UnreadableFileError, OSError):
        return read_json_object(path).get("run")
    return None


def _is_foreign(path: Path) -> bool:
    """Whether a JSON file is whole and not ours; a damaged one may have been."""
    with path.open("rb") as file:
        if b'"format": "dpstride-' in file.read(100):
            return False
    with suppress(UnreadableFileError):
        return not str(read_json_object(path).get("format")).startswith("dpstride-")
    return False


def _other_schedules(path: Path, run: Run) -> list[str]:
    """How schedules of which no record tells differ from this run's, as far as they say."""
    from ..schedule import ScheduleFileError, ScheduleSet

    try:
        found = ScheduleSet.load(path)
    except ScheduleFileError:
        return []
    made = found.provenance
    names = [name for name in ("variance", "decoder", "sampler", "lambda") if name in run.options]
    there: dict[str, Any] = {"objective": found.options.get("objective", "elbo"), "seed": made.get("seed")}
    here: dict[str, Any] = {"objective": run.identity["objective"], "seed": run.identity["seed"]}
    there |= {name: found.options.get(name) for name in names}
    here |= {name: run.options[name] for name in names}
    for part in ("model", "data"):
        there[part] = {"fingerprint": made[part].get("fingerprint")} if isinstance(made.get(part), Mapping) else None
        here[part] = {"fingerprint": run.identity[part]["fingerprint"]}
    known = [name for name, value in there.items() if value is not None]
    return differences({name: there[name] for name in known}, {name: here[name] for name in known})


def _other_statistics(path: Path, identity: dict[str, Any], weights: bool = False) -> Iterator[str]:
    """Statistics, or what is finished of them, of other work than ``identity``; from headers alone.

    The digest of the weights counts with ``weights`` only: statistics have that of a network that has run, and a network may
    make tensors of its own at its first pass. `estimate` compares it again after the probes.
    """
    from ..statistics.storage import DamagedFileError, is_remnant, read_header

    expected = json.loads(json.dumps(identity))
    progress = path.with_name(f"{path.name}.progress")
    for each in (path, *sorted(progress.glob("*.safetensors"))[:1]):
        if not each.is_file():
            continue
        shown = path.name if each == path else progress.name
        try:
            header = read_header(each)
            there = json.loads(header["metadata"] if "metadata" in header else header["identity"])
            different = differences(_comparable(there, expected), _comparable(expected, there))
            different = [each for each in different if weights or not each.startswith("model.fingerprint ")]
            if "data" in there and there["data"].get("skipped") and not expected.get("skip_nonfinite", True):
                different.append(f"{len(there['data']['skipped'])} samples skipped there")
        except (DamagedFileError, OSError, KeyError, ValueError, TypeError, AttributeError):
            if not is_remnant(each):
                yield f"{shown}: not a file of dpstride"
            continue
        if different:
            yield f"{shown}: {', '.join(different)}"


def _comparable(identity: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """What both say of the work; not the model's name, nor what only a result says of it."""
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


def _clear(output: Path, statistics: Mapping[str, dict[str, Any]]) -> None:
    """Remove results of other runs, and statistics that this one cannot use; files of nobody's stay."""
    for pattern in RESULTS:
        for path in output.glob(pattern):
            _remove(path)
    for name in STATISTICS:
        path, identity = output / name, statistics.get(name)
        if identity is None or any(_other_statistics(path, identity)) or not _is_of_steps(path, identity.get("steps")):
            discard(path)


def _is_of_steps(path: Path, steps: list[int] | None) -> bool:
    """Whether statistics are whole, and evaluated at these very steps; or tables of a teacher, which know no others."""
    from ..statistics.artefact import Statistics, StatisticsFileError

    if path.name == "trajectory.safetensors":
        return True
    try:
        evaluated = Statistics.load(path).evaluated
    except StatisticsFileError:
        return False
    return steps is not None and evaluated.nonzero()[0].tolist() == steps


def discard(path: Path) -> None:
    """Remove a file, and what is finished of it."""
    _remove(path)
    _remove(path.with_name(f"{path.name}.progress"))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
