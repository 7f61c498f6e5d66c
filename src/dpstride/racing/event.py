"""A whole race, from statistics to files; inputs are loaded and checked before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..adaptive.loop import estimate_adaptively
from ..denoiser import Denoiser
from ..evaluate.stream import Conditioning
from ..integrations.loaded import LoadedModel
from ..objectives.band import DEFAULT, SamplesPlan
from ..options import RACED_BESIDE, STRIDES, TRAJECTORY, Variance
from ..pipeline import schedules_from
from ..reading.text import printable
from ..report.race import save_race
from ..report.race_page import write_race_page
from ..runs.execution import Execution
from ..runs.folder import RACE, SCHEDULES, Needed, begin
from ..runs.pulse import Pulse
from ..runs.record import Run
from ..runs.workers import current
from ..runs.writing import write_text
from ..schedule import Schedule, ScheduleSet
from ..statistics.artefact import Statistics
from ..statistics.data import Samples
from ..statistics.probes import probe_on_noise
from ..strides import even_stride
from .arena import Arena
from .candidates import FAMILY, RHOS, Candidate, Field, between
from .finish import OURS, expected as expected_finish, finish
from .halving import Heat, Purse, counts, expected as expected_race, race
from .measure import Features, Measure
from .outcome import Race
from .polish import POLISHED, polish, tries
from .sampling import BuiltIn, Sampling
from .teacher import (
    FILE as TEACHER,
    evaluations as evaluations_of_teacher,
    followed,
    needed as needed_of_teacher,
    trajectory_paths,
)
from .variance import closest, race_variances, rivals
from .wish import MOST_REFERENCE, Wish

STATISTICS, DRAWS = "statistics.safetensors", "draws"
PROBED = 8  # samples whose conditioning is used to probe the network
CANDIDATES = len(FAMILY) + len(STRIDES) + len(RHOS) + 1
Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Choice:
    """Schedules chosen by a race, before the final measurement.

    Attributes:
        base: schedules from which all others take sampler, variance and fitted numbers.
        schedules: a schedule for every number of steps.
        heats: the race of each budget.
        variances: races of the reverse variances, if there were any.
        polished: gains by polishing, if requested.
    """

    base: ScheduleSet
    schedules: ScheduleSet
    heats: tuple[Heat, ...]
    variances: tuple[Heat, ...] = ()
    polished: tuple[Heat, ...] = ()


@dataclass(frozen=True, eq=False)
class Event:
    """A whole race, ready to run: everything is loaded and checked, nothing is written yet."""

    loaded: LoadedModel
    choosing: Samples
    scoring: Samples
    output: Path
    wish: Wish
    how: Execution
    sampling: Sampling
    measure: Measure
    record: Run
    needed: Needed
    notes: tuple[str, ...] = ()
    say: Say = lambda text: None

    @property
    def denoiser(self) -> Denoiser:
        """The model."""
        return self.loaded.denoiser

    @property
    def reference_steps(self) -> int:
        """Number of steps of the reference path."""
        T = self.denoiser.process.T
        return min(MOST_REFERENCE, T) if self.wish.reference is None else self.wish.reference

    @property
    def budgets(self) -> tuple[int, ...]:
        """Numbers of steps that race: the most that the requested evaluations allow."""
        return tuple(sorted({self.sampling.cost.steps(evaluations) for evaluations in self.wish.budgets}))

    @property
    def candidates(self) -> int:
        """Number of rules that race."""
        return CANDIDATES + self.given

    @property
    def given(self) -> int:
        """Number of rules among them without a formula: the trajectory objective's and the user's own."""
        return len(self.wish.also) + (followed(self.sampling) is not None)

    @property
    def sampler(self) -> str:
        """The sampler in words, with its evaluations per step unless that is one network pass."""
        guided = self.denoiser.passes
        details = (self.sampling.cost.words, "" if guided == 1 else f"each of {guided} passes of the guided network")
        more = ", ".join(filter(None, details))
        return self.sampling.words + (f" ({more})" if more else "")

    def expected(self) -> tuple[int, int]:
        """Approximate numbers of network evaluations for the race and the final measurement, without the statistics."""
        wish, rounds = self.wish, counts(self.wish.first_samples, self.wish.race_samples)
        drawn = expected_race(self.candidates, rounds)
        if (others := len(rivals(self.denoiser, self.sampling, wish.variance)) - 1) > 0:
            drawn += drawn + wish.race_samples * others  # paths race again where another variance wins
        raced = drawn * sum(self.budgets)
        if wish.polish:
            raced += wish.race_samples * sum(tries(K) * K for K in self.budgets)
        final = expected_finish(wish.samples, self.budgets, len(RACED_BESIDE) + 1 + self.given, self.reference_steps)
        each = self.sampling.cost.step * self.denoiser.passes
        return raced * each + self.of_teacher(), final * each

    def of_teacher(self) -> int:
        """Approximate number of network evaluations for the trajectory objective; 0 if it does not race."""
        return 0 if followed(self.sampling) is None else evaluations_of_teacher(self.denoiser, self.choosing)

    def least(self) -> int:
        """Approximate number of network evaluations for the first round of the race and the final measurement."""
        return self._first_round() + self.of_teacher() + self.expected()[1]

    def _first_round(self) -> int:
        each = self.sampling.cost.step * self.denoiser.passes
        return self.candidates * self.wish.first_samples * sum(self.budgets) * each

    def plan(self) -> str:
        """Describe the race and what it costs."""
        raced, final = self.expected()
        process, wish = self.denoiser.process, self.wish
        return "\n".join(
            [
                f"Model    {self.record.model}: {process.name}, {process.kind}, T = {process.T:,}",
                *(f"         {note}" for note in self.loaded.notes),
                f"Sampler  {self.sampler}; paths of {', '.join(map(str, self.budgets))} steps",
                f"Measure  {self.measure.words}; {len(self.choosing):,} real samples for the race, {len(self.scoring):,} "
                "others for the final measurement",
                f"Cost     about {raced:,} network evaluations for the race, {final:,} for the final measurement"
                + ("" if wish.evaluations is None else f"; at most {wish.evaluations:,} in all"),
            ]
        )

    def run(self, overwrite: bool = False) -> Race:
        """Run the race; the folder must be locked. Results of another run are refused, or removed with ``overwrite``."""
        kept = {STATISTICS: self.needed}
        if followed(self.sampling) is not None:
            kept[TEACHER] = needed_of_teacher(self.denoiser, self.choosing, self.how.seed)
        begin(self.output, self.record, kept, overwrite)
        self.say(self.plan())
        with Pulse(self.say, bars=self.how.progress) as pulse:
            event = replace(self, say=pulse.say)
            pulse.doing("Evaluating the network for the statistics behind the paths")
            statistics = event.statistics()
            field = event.field(statistics)
            pulse.doing("Racing candidates")
            purse = event._purse()
            choice = event.choose(field, purse)
            pulse.doing("Measuring the winners again")
            return event._write(event._finish(field, choice, purse))

    def choose(self, field: Field, purse: Purse) -> Choice:
        """Race paths, then variances, polish, and make schedules for all numbers of steps, without the final measurement.

        The best path with one variance may be far off with another. So if another variance wins, paths race again with it,
        as far as the purse allows; if it does not, the variance that the paths raced with stays.
        """
        arena, base = self.arena(self.choosing, self.how.seed), self._base(field.statistics)
        heats = self._race(arena, field, base, purse)
        winners = {heat.budget: field.named(heat.winner) for heat in heats}
        other, variances = self._variance(arena, field.statistics, base, winners, purse=purse)
        if other.options["variance"] != base.options["variance"]:
            if purse.left is None or purse.left >= self._first_round():
                self.say("Paths race again with that variance")
                base, heats = other, self._race(arena, field, other, purse)
                winners = {heat.budget: field.named(heat.winner) for heat in heats}
            else:
                self.say(
                    f"The evaluation limit is too low for paths to race again, so {base.options['variance']} stays"
                )
        paths, polished = self._polish(arena, base, winners, purse)
        return Choice(base, self._schedules(base, field, winners, paths), tuple(heats), variances, polished=polished)

    # --- the parts -----------------------------------------------------------------------------------------------------

    def statistics(self) -> Statistics:
        """Statistics from which paths are computed, resumed from the output folder."""
        few = self.choosing.take(range(min(self.wish.choosing, len(self.choosing))))
        statistics, report = estimate_adaptively(
            self.denoiser, few, None, self.how.seed, batch_size=self.how.batch_size, data_range=few.data_range,
            budgets=self.budgets, band=DEFAULT, progress=self.how.progress, checkpoint=self.output / STATISTICS,
            check=False,
        )  # fmt: skip
        self.say(f"{self.output / STATISTICS}: {report.sentence()}")
        return statistics

    def field(self, statistics: Statistics) -> Field:
        """All candidates."""
        return Field(statistics, max(self.budgets), {**self._of_teacher(), **self.wish.also})

    def arena(self, real: Samples, seed: int) -> Arena:
        """Model, sampler, noise and real data for drawing and measuring."""
        return self._arena(real, self.measure.of_real(real)["features"], seed)

    def _of_teacher(self) -> dict[str, ScheduleSet]:
        """Paths of the trajectory objective, if the sampler has one."""
        sampler, most = followed(self.sampling), max(self.budgets)
        if sampler is None:
            return {}
        found = trajectory_paths(self.denoiser, sampler, self.choosing, most, how=self.how, folder=self.output)
        return {TRAJECTORY: found}

    def _base(self, statistics: Statistics, variance: Variance | None = None) -> ScheduleSet:
        """Schedules by the objective for samples, from which raced paths take sampler, variance and fitted numbers."""
        drawn = self.sampling if isinstance(self.sampling, BuiltIn) else BuiltIn()
        plan = SamplesPlan(sampler=drawn.sampler, eta=drawn.eta)
        return schedules_from(statistics, variance or self.wish.variance, max_budget=max(self.budgets), plan=plan)

    def _arena(self, real: Samples, features: Features, seed: int) -> Arena:
        with current().telling():
            given = Conditioning.of(real, PROBED).entries
            behaviour = probe_on_noise(self.denoiser, given, PROBED, self.how.batch_size).behaviour.to_dict()
        return Arena(
            self.denoiser,
            self.sampling,
            self.measure,
            features,
            conditioning=real,
            seed=seed,
            folder=self.output / DRAWS,
            identity={"model": self.denoiser.describe(), "behaviour": behaviour, **self.measure.behaviour(real)},
            batch_size=self.how.batch_size,
        )

    def _purse(self) -> Purse:
        limit = self.wish.evaluations
        return Purse(None if limit is None else max(0, limit - self.of_teacher() - self.expected()[1]))

    def _race(self, arena: Arena, field: Field, base: ScheduleSet, purse: Purse) -> list[Heat]:
        heats = []
        for K in self.budgets:
            runners = {
                each.name: base.adopt(Schedule(field.process, path, each.name)) for each, path in field.distinct(K)
            }
            heat = race(arena, runners, counts(self.wish.first_samples, self.wish.race_samples), purse)
            rounds = f"{len(heat.rounds)} round{'s' if len(heat.rounds) > 1 else ''}"
            self.say(f"{K} steps: {printable(heat.winner)} wins over {len(runners) - 1} others after {rounds}")
            heats.append(heat)
        return heats

    def _variance(
        self, arena: Arena, statistics: Statistics, base: ScheduleSet, winners: dict[int, Candidate], *, purse: Purse
    ) -> tuple[ScheduleSet, tuple[Heat, ...]]:
        """Base schedules with the variance whose samples along the winners' paths are closest to real data."""
        sets: dict[str, ScheduleSet] = {
            name: self._base(statistics, name) for name in rivals(self.denoiser, self.sampling, self.wish.variance)
        }
        if not sets:
            return base, ()
        paths = {K: candidate.path(K) for K, candidate in winners.items()}
        heats = race_variances(arena, sets, paths, self.wish.race_samples, purse=purse)
        self.say(f"Variance: {closest(heats)} is the closest along the winners' paths, of {', '.join(sets)}")
        return sets[closest(heats)], heats

    def _polish(
        self, arena: Arena, base: ScheduleSet, winners: dict[int, Candidate], purse: Purse
    ) -> tuple[dict[int, tuple[int, ...]], tuple[Heat, ...]]:
        """Paths that polishing moved, by budget, and the gain of each."""
        paths, heats = {}, []
        for K, candidate in winners.items() if self.wish.polish else ():
            start = base.adopt(Schedule(base.process, candidate.path(K)))
            found, heat = polish(arena, start, candidate.name, self.wish.race_samples, purse=purse)
            if found is not start:
                paths[K] = found.steps
            self.say(f"{K} steps: polishing {'moved' if K in paths else 'did not move'} the path of {candidate.name}")
            heats.append(heat)
        return paths, tuple(heats)

    def _schedules(
        self, base: ScheduleSet, field: Field, winners: dict[int, Candidate], polished: dict[int, tuple[int, ...]]
    ) -> ScheduleSet:
        """Schedules for every number of steps: the winners', polished or not, and those between them."""
        chosen = {K: between(winners, field, K) for K in range(1, max(winners) + 1)}
        names = {str(K): candidate.name + (POLISHED if K in polished else "") for K, candidate in chosen.items()}
        return ScheduleSet(
            process=field.process,
            entries={K: (polished.get(K) or candidate.path(K), None, None) for K, candidate in chosen.items()},
            stride=OURS,
            options=base.options,
            fitted=base.fitted,
            provenance={**base.provenance, "race": names, "run": self.record.id},
        )

    def _finish(self, field: Field, choice: Choice, purse: Purse) -> Race:
        real, base = self.measure.of_real(self.scoring), choice.base
        arena = self._arena(self.scoring, real["features"], self.how.seed + 1)
        found = finish(
            arena, self.wish.samples, ours={K: choice.schedules[K] for K in choice.schedules.budgets},
            others=lambda K: field.beside(base, K), reference=base.adopt(even_stride(field.process, self.reference_steps)),
            budgets=self.budgets, margin=self.wish.within, say=self.say,
        )  # fmt: skip
        return Race(
            choice.schedules, choice.heats, found, self.sampler, measure=self.measure.words, scale=self.measure.scale,
            evaluations={"race": purse.spent, "finish": found.evaluations}, notes=self.notes, real=real["images"],
            variances=choice.variances, polished=choice.polished, cost=self.sampling.cost,
        )  # fmt: skip

    def _write(self, found: Race) -> Race:
        """Write schedules, numbers, table, pictures and the page."""
        files = [self.output / name for name in (SCHEDULES, RACE, "table.txt")]
        if current().main:
            found.schedules.save(files[0])
            found.save(files[1], self.record.id)
            write_text(files[2], f"{found}\n")
            files += save_race(found, self.output)
            files.insert(0, write_race_page(self.output))
        return replace(found, files=tuple(files))
