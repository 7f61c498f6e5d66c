"""Race schedules on points, small images, signals and tables, for the last table of docs/beyond/race.md.

    python benchmarks/race_other_data.py                 all of them, some minutes on one core
    python benchmarks/race_other_data.py "points, 2"     one of them
    python benchmarks/race_other_data.py --page-only     rewrite the page from stored results

The denoisers are the ideal ones of `other_data.py`, in closed form, so differences come from the path alone. `dpstride.tune`
races by energy distance with data of seed 0, and measures the winners, the hand-made strides and the paths of the ELBO and the
trajectory objective again, from other noise and against data of seed 2. All samples are kept in runs/beyond/race_other_data;
results are in docs/beyond/results/race_other_data.
"""

from __future__ import annotations

import argparse
from typing import Any

from beyond import RUNS, results, save, table, write_page
from other_data import SUBJECTS, Subject
from race import BUDGETS, SAMPLERS, SHOWN, WORDS, counts

from dpstride import tune
from dpstride.options import DEFAULT_OBJECTIVE, RACED_BESIDE, TRAJECTORY
from dpstride.racing.finish import OURS

TOPIC, MEASURE = "race_other_data", "energy"
COUNT, SAMPLES, CHOOSING_SEED, REAL_SEED = 2000, 1024, 0, 2


def measured(name: str, sampler: str, subject: Subject) -> dict[str, Any]:
    """Distances of all schedules by number of steps and name, and paired differences of the raced one from each."""
    folder = RUNS / TOPIC / f"{name.replace(', ', '-').replace(' ', '')}-{sampler}"
    data, heldout = (subject.draw(COUNT, seed) for seed in (CHOOSING_SEED, REAL_SEED))
    race = tune(
        subject.denoiser, data, folder, heldout, data_range=subject.data_range, batch_size=256, progress=False,
        sampler=sampler, budgets=BUDGETS, samples=SAMPLES, features="none", say=lambda text: print(text, flush=True),
    )  # fmt: skip
    print(f"{name}, {sampler}: {race.answer}", flush=True)
    winners = {heat.budget: heat.winner for heat in race.heats}
    cells: dict[str, Any] = {str(K): {"winner": winners[K], "schedules": {}} for K in BUDGETS}
    for (label, K), entry in race.finish.entries.items():
        if K in BUDGETS:
            found: dict[str, Any] = {"steps": list(entry.steps), MEASURE: entry.distance}
            if label != OURS:
                ahead, error = entry.ahead or (0.0, 0.0)  # None where the paths are the same
                found["ours minus it"] = {MEASURE: (-ahead, error)}
            cells[str(K)]["schedules"][label] = found
    return {"reference": race.finish.reference.distance, "cells": cells}


def page(found: dict[str, dict[str, Any]]) -> list[str]:
    """Counts, then energy distances of every cell."""
    names = [OURS, *RACED_BESIDE, DEFAULT_OBJECTIVE, TRAJECTORY]
    cells, rows = [], []
    for subject, by_sampler in found.items():
        for sampler, result in by_sampler.items():
            for K, cell in result["cells"].items():
                own = cell["schedules"]
                cells.append(own)
                best = min(own, key=lambda name: own[name][MEASURE])
                shown = [f"{1000.0 * own[name][MEASURE]:.2f}" if name in own else "" for name in names]
                shown = [f"**{each}**" if name == best else each for name, each in zip(names, shown, strict=True)]
                many = f"{1000.0 * result['reference']:.2f}"
                rows.append([subject, WORDS[sampler], K, *shown, many, cell["winner"]])
    if not cells:
        return ["Nothing is measured yet."]
    good, ahead, worse, _ = counts(cells, MEASURE)
    return [
        f"{len(cells)} cells (data, sampler, steps), with {SAMPLES:,} samples of every schedule against {COUNT:,} new samples "
        f"of the data. At most 1.05 × the best other schedule, or within two standard errors of it: {good}. Closer than every "
        f"hand-made schedule by more than two standard errors: {ahead}. Farther than even steps after Holm's correction: "
        f"{worse}.",
        "**Energy distance · 10³**",
        table(
            [
                "data, dimensions",
                "sampler",
                "steps",
                *(SHOWN.get(name, name) for name in names),
                "128 even",
                "what won",
            ],
            rows,
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("subjects", nargs="*", default=[])
    parser.add_argument("--samplers", default=",".join(SAMPLERS))
    parser.add_argument("--page-only", action="store_true")
    options = parser.parse_args()
    for name in () if options.page_only else options.subjects or SUBJECTS:
        for sampler in options.samplers.split(","):
            kept = results(TOPIC).get(name, {})
            if sampler not in kept:
                kept[sampler] = measured(name, sampler, SUBJECTS[name]())
                save(TOPIC, name, kept)
    write_page("race", page(results(TOPIC)), section="race-other-data")


if __name__ == "__main__":
    main()
