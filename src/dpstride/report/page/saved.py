"""Saved results of `find`, `demo` and `study`: enough for every figure and the page, without network passes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...adaptive.report import AdaptiveReport
from ...evaluate.comparison import Comparison, check_provenance, compare
from ...evaluate.purpose import is_for_samples, samples_sentence
from ...objectives.elbo import heldout_costs
from ...objectives.step_costs import CostTable
from ...options import BEST, CostOptions
from ...reading.documents import read_json_object
from ...reading.limits import UnreadableFileError
from ...runs.folder import CHECK, STATISTICS, Needed, other_statistics
from ...runs.record import Run
from ...schedule import ScheduleSet
from ...statistics.artefact import Statistics
from ...study.results import StudyResults
from ..front import NAME, Front

AGREES = 1e-6  # bits/dim


@dataclass(frozen=True, eq=False)
class Saved:
    """Results of one folder. Parts that are None or empty were missing, and the page omits them.

    ``heldout`` has the fingerprint and the number of samples of the held-out data, ``costs`` the step costs on them.
    """

    folder: Path
    schedules: ScheduleSet
    comparison: Comparison
    costs: CostTable | None
    heldout: Mapping[str, Any]
    study: StudyResults | None
    adaptive: AdaptiveReport | None
    run: Run | None
    front: Front | None = None
    answer: str | None = None  # for schedules for samples; otherwise the comparison has the answer

    @classmethod
    def read(cls, folder: str | Path) -> Saved:
        """Everything that ``folder`` holds; schedules and either a comparison or held-out statistics are needed."""
        home = Path(folder)
        if not (home / "schedules.json").is_file():
            raise UnreadableFileError(
                f"{home}: holds no schedules.json. Name the folder that `dpstride find`, `demo` or `study` wrote (-o)."
            )
        schedules = ScheduleSet.load(home / "schedules.json")
        if "objective" in schedules.options and "variance" not in schedules.options:
            raise UnreadableFileError(
                f"{home}: its schedules are for a deterministic sampler and have no bits/dim, so there is no page for them. "
                "See endpoints.json for how far from the teacher each path ends."
            )
        heldout = home / "heldout.safetensors"
        statistics = Statistics.load(heldout) if heldout.is_file() else None
        if (home / "comparison.json").is_file():
            comparison = Comparison.load(home / "comparison.json")
        elif statistics is not None:
            comparison = compare(schedules, statistics)
        else:
            raise UnreadableFileError(
                f"{home}: holds neither comparison.json nor heldout.safetensors, so the schedules have no held-out scores. "
                "Run `dpstride find`, or `dpstride estimate` on held-out data with the output heldout.safetensors."
            )
        study, adaptive, run = (home / name for name in ("results.json", "adaptive.json", "run.json"))
        saved = cls(
            folder=home,
            schedules=schedules,
            comparison=comparison,
            costs=None if statistics is None else _costs(schedules, statistics),
            heldout={} if statistics is None else statistics.data,
            study=StudyResults.load(study) if study.is_file() else None,
            adaptive=AdaptiveReport.load(adaptive) if adaptive.is_file() else None,
            run=Run.load(run) if run.is_file() else None,
            # A front without λ in the options was left in the folder by another objective.
            front=Front.load(home / NAME) if "lambda" in schedules.options and (home / NAME).is_file() else None,
            answer=samples_sentence(schedules, statistics) if statistics and is_for_samples(schedules) else None,
        )
        saved.check()
        return saved

    @property
    def headline(self) -> str:
        """The answer: for samples if schedules were chosen for them, else in bits/dim."""
        return self.answer or self.comparison.sentence()

    def check(self) -> None:
        """Raise unless all files are from one run: a page must not show paths of one run with numbers of another."""
        names = "schedules.json and comparison.json"
        if self.comparison.T != self.schedules.process.T or self.comparison.budgets != self.schedules.budgets:
            raise ValueError(
                f"{self.folder}: {names} have different grids or budgets, so they are from different runs. {AGAIN}"
            )
        if self.front is not None and self.front.weight != self.schedules.options["lambda"]:
            raise ValueError(
                f"{self.folder}: {NAME} is for λ = {self.front.weight:g} and schedules.json for "
                f"{self.schedules.options['lambda']:g}, so they are from different runs. {AGAIN}"
            )
        self._check_names()
        if self.costs is None:
            return
        for K in {self.schedules.budgets[0], self.comparison.best_budget, self.schedules.budgets[-1]}:
            steps = self.schedules.entries[K][0]
            found = self.costs.bpd(float(self.costs.step_nats(steps).sum()), int(steps[0]))
            said = self.comparison.curves[BEST][K][0]
            if abs(found - said) > AGREES * max(1.0, abs(said)):
                raise ValueError(
                    f"{self.folder}: heldout.safetensors gives {found:.6f} bits/dim for {K} steps and comparison.json "
                    f"{said:.6f}, so they are from different runs. {AGAIN}"
                )

    def _check_names(self) -> None:
        """Compare the run ids in the files; those of version 0.1 and of single verbs have none, and are checked by numbers."""
        found = {
            "schedules.json": self.schedules.provenance.get("run"),
            "comparison.json": self.comparison.run,
            "results.json": None if self.study is None else self.study.run,
            **{name: _run_of(self.folder / name) for name in ("adaptive.json", NAME, CHECK)},
        }
        record = None if self.run is None else self.run.id
        named = record or next((run for run in found.values() if run is not None), None)
        others = [name for name, run in found.items() if run not in (None, named)]
        if self.costs is None and None in (made := (found["schedules.json"], self.comparison.run)) and any(made):
            others.append("schedules.json" if made[0] is None else "comparison.json")  # and no numbers to check
        if record is not None and self.heldout.get("fingerprint") not in (None, self._heldout_of_run):
            others.append("heldout.safetensors")
        if record is not None and any(other_statistics(self.folder / STATISTICS[0], self._needed)):
            others.append(STATISTICS[0])
        if others:
            raise ValueError(
                f"{self.folder}: {', '.join(others)} {'is' if len(others) == 1 else 'are'} from another run than "
                f"{'run.json' if record else 'the other files'} ({named}). {AGAIN}"
            )

    @property
    def _needed(self) -> Needed:
        return Needed({} if self.run is None else self.run.identity, skip_nonfinite=True)

    @property
    def _heldout_of_run(self) -> Any:
        return None if self.run is None else self.run.identity.get("heldout", {}).get("fingerprint")


AGAIN = "Run the command that wrote them again."


def _run_of(path: Path) -> Any:
    return read_json_object(path).get("run") if path.is_file() else None


def _costs(schedules: ScheduleSet, heldout: Statistics) -> CostTable:
    """The table that `compare` scores with: the schedules' own options and fitted numbers."""
    heldout.check_process(schedules.process)
    check_provenance(schedules)
    return heldout_costs(heldout, CostOptions.from_dict(schedules.options), schedules.fitted)
