"""Stage 3. The search for the description that explains the network best.

Every change of the declared description is tried with few draws at few noise levels. Those clearly worse than the leader are
dropped; the others are measured at all levels, with more draws until they are decided. Readings of the output cost nothing,
so all of them are tried with every change. If the leader is clearly better than the description at the start, the search
continues from there; at the end, unnecessary changes are undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from .compare import SIGMAS, Difference, difference
from .description import Change, Facts, Inputs
from .measure import Indices, Measured, Meter

MARGIN = 0.005  # bits/dim by which a description must be better at least
MATTERS = 0.02  # bits/dim: closer descriptions need not be distinguished
SAME = 1e-6  # bits/dim below which a change makes no difference to the network
FINALISTS = 6  # inputs that are compared to the end
ROUNDS = 3


@dataclass(frozen=True, eq=False)
class Arm:
    """One description: inputs with their measured errors, a reading of the output, and the changes that led there."""

    measured: Measured
    reading: int
    changes: tuple[Change, ...] = ()

    @property
    def pair(self) -> tuple[Measured, int]:
        """The description as `difference` takes it."""
        return self.measured, self.reading


@dataclass
class Found:
    """Result of a search."""

    declared: Arm
    best: Arm
    gain: Difference  # extra cost of the declared description over the best
    tied: list[Arm] = field(default_factory=list)  # as good as the best
    costs: dict[str, Difference] = field(default_factory=dict)  # of single changes, over the declared description
    refused: dict[str, str] = field(default_factory=dict)
    draws: int = 0


class Search:
    """One search; ``update`` is called after each change of the inputs, for a progress bar."""

    def __init__(
        self, meter: Meter, facts: Facts, changes: Iterable[Change], draws: int, update: Callable[[], object]
    ) -> None:
        self.meter, self.facts, self.changes, self.update = meter, facts, tuple(changes), update
        self.levels: Indices = np.arange(len(meter.targets))
        self.refused: dict[str, str] = {}
        self.costs: dict[str, Difference] = {}
        self.draws = self.least_draws = min(draws, meter.draws)
        self.first_draws = (self.draws + 1) // 2
        self.declared_reading = 0
        self.fed: dict[tuple[int, str], Measured] = {}  # another reading of the same inputs needs no new pass
        self.kinds_differ = True  # False once the network is found to treat integers and floats alike

    def run(self, inputs: Inputs, reading: int) -> Found:
        """Find the best description, starting from the declared one."""
        self.declared_reading = reading
        declared = Arm(Measured(self.meter, inputs), reading)
        declared.measured.ensure(self.levels, self.draws)
        best = declared
        tied: list[Arm] = []
        for _ in range(ROUNDS):
            self.draws = self.least_draws
            leader, tied = self._race(best)
            if leader is best:
                break
            best = leader
        best = self._simplified(declared, best)
        self.draws = min(declared.measured.draws, best.measured.draws)
        gain = Difference(0.0, 0.0)
        if best is not declared:
            gain = self._difference(best, declared) or gain
        tied = [arm for arm in tied if arm is not best and arm is not declared]
        return Found(declared, best, gain, tied, costs=self.costs, refused=self.refused, draws=self.draws)

    # --- one round ----------------------------------------------------------------------------------------------------

    def _race(self, current: Arm) -> tuple[Arm, list[Arm]]:
        """The simplest of the best descriptions, or ``current``; and those that cannot be distinguished from it."""
        fed = [(current.measured, current.changes), *self._fed(current)]
        arms = [self._arm(current, *each, reading) for each in fed for reading in range(len(self.meter.readings))]
        kept = self._kept(current, arms, self.first_draws, few=True)
        same = [arm for arm in kept if self._is_same(current, arm)]
        others = [arm for arm in kept if arm not in same]
        looks = {id(arm): self._first_look(current, arm) for arm in others}
        promising = self._first(others, looks, current) + [arm for arm in others if _may_win(looks[id(arm)])]
        fully = {id(arm.measured) for arm in promising}
        measured = [arm for arm in others if id(arm.measured) in fully and (arm is current or self._is_measured(arm))]
        looks |= {id(arm): self._difference(current, arm) for arm in measured}
        kept = self._first(measured, looks, current)
        early = [
            arm for arm in others if arm not in kept and arm.reading == current.reading and _is_tie(looks[id(arm)])
        ]
        settled: list[Arm] = []
        while True:
            current.measured.ensure(self.levels, self.draws)
            kept = [arm for arm in kept if arm is current or self._is_measured(arm)]
            kept = self._kept(current, kept, self.draws)
            leader = self._leader(current, kept)
            done = [arm for arm in kept if arm is not current and arm is not leader and self._settled(leader, arm)]
            settled += done
            kept = [arm for arm in kept if arm not in done]
            if self.draws >= self.meter.draws or not self._undecided(leader, kept):
                break
            self.draws = min(2 * self.draws, self.meter.draws)
        gain = self._difference(leader, current)
        if leader is current or gain is None or gain.at_least(SIGMAS) <= MARGIN:
            ties = [arm for arm in kept if arm is not current and self._ties(current, arm)]
            return current, [*same, *settled, *ties, *early]
        ties = [*settled, *(arm for arm in kept if arm is not current and self._ties(leader, arm))]
        order = {id(arm): number for number, arm in enumerate(arms)}
        ties = [arm for arm in ties if arm is leader or self._is_measured(arm)]
        chosen = min(ties, key=lambda arm: (self._complexity(arm), order[id(arm)]))
        return chosen, [arm for arm in ties if arm is not chosen]

    def _is_measured(self, arm: Arm) -> bool:
        """Measure an arm in full; return False, and note the error, if the network refuses it at some noise level."""
        try:
            arm.measured.ensure(self.levels, self.draws)
        except Exception as error:  # a network may raise anything for a time or a scale
            self._note_refusal(" and ".join(change.label for change in arm.changes), error)
            return False
        return True

    def _note_refusal(self, label: str, error: Exception) -> None:
        self.refused[label] = f"{type(error).__name__}: {error}"[:200]

    def _fed(self, current: Arm) -> Iterable[tuple[Measured, tuple[Change, ...]]]:
        """Measure every change of the inputs at a few levels; those that the network refuses are noted."""
        changed = {change.kind for change in current.changes}
        tried: list[Inputs] = [current.measured.inputs]
        for change in self.changes:
            inputs = None if change.kind in changed else change.apply(current.measured.inputs, self.facts)
            if inputs is None or any(inputs.is_same(other, self.kinds_differ) for other in tried):
                continue
            tried.append(inputs)
            key = id(current.measured.inputs), change.label
            measured = self.fed.setdefault(key, Measured(self.meter, inputs))
            try:
                measured.ensure(measured.few, self.first_draws)
            except Exception as error:
                self._note_refusal(change.label, error)
                continue
            finally:
                self.update()
            if inputs.is_same(current.measured.inputs, kinds_differ=False):
                self.kinds_differ = not self._is_same(current, Arm(measured, current.reading))
            yield measured, (*current.changes, change)

    def _arm(self, current: Arm, measured: Measured, changes: tuple[Change, ...], reading: int) -> Arm:
        same = measured is current.measured and reading == current.reading
        return current if same else Arm(measured, reading, changes)

    def _kept(self, current: Arm, arms: list[Arm], draws: int, few: bool = False) -> list[Arm]:
        """``current``, arms not clearly worse than the leader, and, at ``few`` levels, arms clearly better than ``current``.

        At a few levels the leader may look better than it is at all of them.
        """
        beside = current.pair
        costs = {id(arm): difference(beside, arm.pair, draws, beside=beside, few=few) for arm in arms}
        possible = [arm for arm in arms if costs[id(arm)] is not None]
        if not current.changes and current.reading == self.declared_reading:
            self._note_costs(current, possible, costs)
        leader = min(possible, key=lambda arm: _mean(costs[id(arm)]))
        kept = []
        for arm in possible:
            behind = difference(leader.pair, arm.pair, draws, beside=beside, few=few)
            cost = costs[id(arm)]
            ahead = few and cost is not None and cost.at_most(SIGMAS) < -MARGIN
            close = behind is not None and behind.at_least(SIGMAS) <= MATTERS / 4
            if arm is current or arm is leader or ahead or close:
                kept.append(arm)
        return kept

    def _note_costs(self, current: Arm, arms: list[Arm], costs: dict[int, Difference | None]) -> None:
        """Record the cost of every single change: of the inputs with the declared reading, or of the reading."""
        for arm in arms:
            cost, single = costs[id(arm)], not arm.changes or arm.reading == current.reading
            if cost is not None and single and arm is not current:
                self.costs[self.label(arm, current)] = cost

    def _first(self, arms: list[Arm], looks: dict[int, Difference | None], current: Arm) -> list[Arm]:
        """Arms of the few best inputs, and ``current``."""
        rank: dict[int, float] = {}
        for arm in arms:
            rank[id(arm.measured)] = min(rank.get(id(arm.measured), np.inf), _mean(looks[id(arm)]))
        allowed = {*sorted(rank, key=lambda key: rank[key])[:FINALISTS], id(current.measured)}
        arms = [arm for arm in arms if id(arm.measured) in allowed]
        return arms if current in arms else [current, *arms]

    def _undecided(self, leader: Arm, arms: list[Arm]) -> bool:
        """Return whether more draws could show that one of the arms is worse than the leader by what matters."""
        behind = [self._difference(leader, arm) for arm in arms if arm is not leader]
        return any(
            each is not None and each.at_most(SIGMAS) > MATTERS and each.at_least(SIGMAS) <= MARGIN for each in behind
        )

    def _settled(self, leader: Arm, arm: Arm) -> bool:
        """Return whether the arm is so close to the leader that the two need not be distinguished."""
        behind = self._difference(leader, arm)
        return behind is not None and behind.at_most(SIGMAS) <= MATTERS

    def _leader(self, current: Arm, arms: list[Arm]) -> Arm:
        return min(arms, key=lambda arm: _mean(self._difference(current, arm)) if arm is not current else 0.0)

    def _difference(self, first: Arm, second: Arm) -> Difference | None:
        return difference(first.pair, second.pair, self.draws, beside=first.pair)

    def _first_look(self, current: Arm, arm: Arm) -> Difference | None:
        return difference(current.pair, arm.pair, self.first_draws, beside=current.pair, few=True)

    def _is_same(self, current: Arm, arm: Arm) -> bool:
        if arm is current or arm.reading != current.reading:
            return False
        found = self._first_look(current, arm)
        return found is not None and abs(found.mean) + found.standard_error < SAME

    def _ties(self, leader: Arm, arm: Arm) -> bool:
        return _is_tie(Difference(0.0, 0.0) if arm is leader else self._difference(leader, arm))

    # --- words and order ----------------------------------------------------------------------------------------------

    def _complexity(self, arm: Arm) -> int:
        reading = self.meter.readings[arm.reading]
        plain = 0 if reading.is_plain and reading.predicts else 1
        return len(arm.changes) + plain + (arm.reading != self.declared_reading)

    def label(self, arm: Arm, beside: Arm) -> str:
        """Describe the changes of ``arm`` that ``beside`` does not have."""
        words = [change.label for change in arm.changes if change not in beside.changes]
        if arm.reading != beside.reading:
            words.insert(0, self.meter.readings[arm.reading].label)
        return " and ".join(words)

    def _simplified(self, declared: Arm, best: Arm) -> Arm:
        """``best`` without its unnecessary changes."""
        for change in best.changes if len(best.changes) > 1 else ():
            changes = tuple(each for each in best.changes if each is not change)
            inputs: Inputs | None = declared.measured.inputs
            for each in changes:
                inputs = None if inputs is None else each.apply(inputs, self.facts)
            if inputs is None:
                continue
            simpler = replace(best, measured=Measured(self.meter, inputs), changes=changes)
            if self._is_measured(simpler) and self._ties(best, simpler):
                return self._simplified(declared, simpler)
        return best


def _is_tie(behind: Difference | None) -> bool:
    return behind is not None and behind.mean < MATTERS and behind.at_least(SIGMAS) <= MARGIN


def _may_win(behind: Difference | None) -> bool:
    """Return whether the description may still be better by what matters."""
    return behind is not None and behind.mean - SIGMAS * behind.standard_error < -MATTERS


def _mean(found: Difference | None) -> float:
    return np.inf if found is None else found.mean
