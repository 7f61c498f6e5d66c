"""Run the paper's evaluation on every embedded model and write docs/zoo-study.md.

    python benchmarks/study.py                      all models: an hour or more each on two cores
    python benchmarks/study.py fashion-simple       one of them
    python benchmarks/study.py --page-only          only rewrite the page from existing results

For each model, runs the command that a user would type, with two processes and a compiled network; it resumes after an
interruption. Results and figures are then copied to docs/study, and the section between the page's markers is written.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from dpstride import ScheduleSet, Statistics, elbo_costs, even_stride, quadratic_stride, score, zoo
from dpstride.evaluate.comparison import STRIDES, TABLE_BUDGETS
from dpstride.objectives.step_costs import standard_error
from dpstride.report.tables import study_tables
from dpstride.report.text import NAMES
from dpstride.study.results import StudyResults
from page import write

sys.path.append(str(Path(__file__).parents[1] / "tools"))

from paper_tables import beside

ROOT = Path(__file__).parents[1]
PAGE, README, FIRST = ROOT / "docs" / "zoo-study.md", ROOT / "README.md", "fashion-simple"
KEPT = ROOT / "docs" / "study"
RUNS = ROOT / "runs" / "study"
LAUNCH = ["torchrun", "--nproc-per-node", "2", "-m", "dpstride"]
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",  # one core for each process
    "MALLOC_MMAP_MAX_": "0",  # glibc: keep freed memory, because every pass needs it again
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
}
# Where a sample costs 4,000 evaluations: fewer samples, in batches that two processes share.
LONG = ["--heldout-samples", "64", "--all-samples", "80", "--batch-size", "40"]
FEW = 32
HAND_MADE = {"even": even_stride, "quadratic": quadratic_stride}
FIGURES = {
    "bits_per_dim": "held-out bits/dim against the number of steps",
    "timesteps": "times visited by the DP stride",
    "distances": "distances against the number of steps",
    "agreement": "distance against bits/dim",
    "ablation": "loss from choosing on fewer samples",
    "samples": "samples of each stride, below real images",
}


def words_of(name: str, more: list[str]) -> list[str]:
    output = str((RUNS / name).relative_to(ROOT))
    fewer = LONG if zoo.describe(name)["T"] > 1000 else []
    return ["study", name, "fashion-train", "--heldout", "fashion-test", "-o", output, "--compile", *fewer, *more]


def run(name: str, more: list[str]) -> None:
    words = [*LAUNCH, *words_of(name, more)]
    print("$", *words, flush=True)
    program = Path(sys.executable).with_name(words[0])
    subprocess.run([str(program), *words[1:]], check=True, cwd=ROOT, env=os.environ | ENVIRONMENT)
    keep(name, words)


def keep(name: str, words: list[str]) -> None:
    """Copy everything the pages show, and the command that produced it."""
    kept = KEPT / name
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copy(RUNS / name / "results.json", kept)
    for figure in FIGURES:
        source = RUNS / name / "figures" / f"{figure}.png"
        if figure == "samples":  # greyscale images: a third of the size, and no gain from an .svg
            Image.open(source).convert("L").save(kept / source.name, optimize=True)
        else:
            shutil.copy(source, kept)
            shutil.copy(source.with_suffix(".svg"), kept)
    schedules = ScheduleSet.load(RUNS / name / "schedules.json")
    heldout = Statistics.load(RUNS / name / "heldout.safetensors")
    (kept / "differences.txt").write_text(differences(schedules, heldout), encoding="utf-8")
    (kept / "losses.txt").write_text(losses(schedules, heldout), encoding="utf-8")
    (kept / "command.txt").write_text(" ".join(words) + "\n", encoding="utf-8")


def differences(schedules: ScheduleSet, heldout: Statistics) -> str:
    """Return the extra cost of hand-made strides over the DP stride, on the same images and noise, with standard errors."""
    costs = elbo_costs(heldout, schedules.options["variance"], schedules.options["decoder"])
    assert costs.unit_totals is not None
    lines = [f"| bits/dim above the DP stride | {' | '.join(map(str, TABLE_BUDGETS))} |"]
    lines += ["|---|" + "---:|" * len(TABLE_BUDGETS)]
    for stride, make in HAND_MADE.items():
        cells = []
        for K in TABLE_BUDGETS:
            (dp, other), sizes = costs.unit_totals([schedules[K].steps, make(schedules.process, K).steps])
            more, nats = other - dp, heldout.dims * math.log(2.0)
            mean = float(np.average(more, weights=sizes))
            cells.append(f"{mean / nats:+.3f} ± {standard_error(more, sizes) / nats:.3f}")
        lines.append(f"| {NAMES[stride]} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def losses(schedules: ScheduleSet, heldout: Statistics) -> str:
    """Return where along paths of few steps the bits are lost, on held-out data."""
    lines = [
        "| where bits/dim are lost | decoder, from t = | other steps | the costliest of these |",
        "|---|---:|---:|---:|",
    ]
    for K in (8, FEW):
        strides = [*(make(schedules.process, K) for make in HAND_MADE.values()), schedules[K]]
        for stride, found in zip(STRIDES, score(heldout, map(schedules.adopt, strides)), strict=True):
            steps, terms = found.steps, found.terms["steps"]
            worst = max(range(len(terms)), key=terms.__getitem__)
            lines.append(
                f"| {K} steps, {NAMES[stride]} | {found.terms['decoder']:.3f}, {steps[-2]} | {sum(terms):.3f} | "
                f"{terms[worst]:.3f}, {steps[worst]} → {steps[worst + 1]} |"
            )
    return "\n".join(lines) + "\n"


def write_pages() -> None:
    """Write the studies to their page, and the first model's table and figure to the README."""
    done = [name for name in zoo.names() if (KEPT / name / "results.json").is_file()]
    write("study", "\n".join([overview(done), *map(section, done)]), PAGE)
    if FIRST in done:
        write("study", summary(FIRST), README)


def summary(name: str) -> str:
    """Return the paper's table for one model, with its command and findings about samples; its curves are at the top."""
    results = StudyResults.load(KEPT / name / "results.json")
    command = (KEPT / name / "command.txt").read_text(encoding="utf-8").strip()
    parts = [
        f"The figure at the top and this table show `{name}`, a small network trained on Fashion-MNIST that comes with the "
        f"package ([the zoo](docs/zoo.md)); command: `{command}` (seed 0):\n",
        study_tables(results)[0].markdown(),
        f"{results.comparison.sentence()} All strides are scored on the same images, so differences between strides are far "
        "more certain than each number. Using all steps can be worse than using few: the path must then visit the "
        "lowest noise levels, where the network may be poor ([why](docs/method.md#9-when-more-steps-hurt)).\n",
        "**Samples.** " + samples_sentence(results) + " All experiments, images of samples, and the paper's numbers "
        "next to ours: [the zoo's studies](docs/zoo-study.md).\n",
    ]
    return "\n".join(part for part in parts if part)


def samples_sentence(results: StudyResults) -> str:
    """State at which budgets the best likelihood does not have the best samples."""
    budgets = sorted({each.budget for each in results.distances if each.budget < results.T})
    least = {
        K: min((each for each in results.distances if each.budget == K), key=lambda each: each.frechet) for K in budgets
    }
    farther = [str(K) for K in budgets if least[K].stride != "dp"]
    if not farther:
        return "The DP stride also has the smallest distance to real images at every budget that was sampled."
    where = f"{', '.join(farther[:-1])} and {farther[-1]}" if farther[1:] else farther[0]
    sampled = ", ".join(map(str, budgets))
    return (
        f"Lower bits/dim do not mean better samples. Samples along the DP stride are farther from real images than along an "
        f"even or quadratic stride at {where} steps (measured at {sampled}). For samples in few steps use `--for samples` "
        "([schedules for samples](docs/beyond/samples.md)); there are also [schedules for deterministic samplers]"
        "(docs/beyond/trajectory.md) and [for both](docs/beyond/mixed.md)."
    )


def overview(names: list[str]) -> str:
    """Return a row for each model: the loss with 32 steps, and whether sample distances agree."""
    lines = [
        f"| at {FEW} steps | bits/dim above all steps: even, quadratic, DP | distance of samples: even, quadratic, DP | "
        "with all steps | of real images | rank correlation | fewer bits/dim, smaller distance |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for name in names:
        results = StudyResults.load(KEPT / name / "results.json")
        agreement, curves, T = results.agreement, results.curves, results.T
        assert agreement is not None
        assert results.floor is not None
        all_steps = curves["dp"][T][0]
        gaps = ", ".join(f"{curves[stride][FEW][0] - all_steps:+.3f}" for stride in STRIDES)
        found = [each for stride in STRIDES if (each := results.distance_at(stride, FEW)) is not None]
        every = results.distance_at("dp", T)
        assert every is not None
        distances = ", ".join(f"{each.frechet:.2f}" for each in found)
        fewer = f" ({every.samples} samples)" if every.samples < found[0].samples else ""
        lines.append(
            f"| [{name}](#{name}) | {gaps} | {distances} | {every.frechet:.2f}{fewer} | "
            f"{results.floor.frechet:.2f} | {agreement.correlation:+.2f} | {agreement.same_order} of {agreement.pairs} |"
        )
    return "\n".join(lines) + "\n"


def section(name: str) -> str:
    results = StudyResults.load(KEPT / name / "results.json")
    objective = zoo.describe(name)["objective"]
    command = (KEPT / name / "command.txt").read_text(encoding="utf-8").strip()
    parts = [f"### {name}\n", f"```console\n$ {command}\n```\n", beside(results, objective)]
    parts += [(KEPT / name / file).read_text(encoding="utf-8") for file in ("differences.txt", "losses.txt")]
    parts += [table.markdown() for table in study_tables(results)]
    parts += [f"{results.sentence}\n"] if results.sentence else []
    parts += [f"- {note}" for note in results.notes]
    parts += ["" if results.notes else None]
    for figure, words in FIGURES.items():
        if (KEPT / name / f"{figure}.png").is_file():
            parts.append(f"![{name}: {words}](study/{name}/{figure}.png)\n")
    return "\n".join(part for part in parts if part is not None) + "\n"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; default: every embedded one")
    parser.add_argument("--page-only", action="store_true")
    parser.add_argument(
        "--study-option", action="append", default=[], help="passed on, e.g. --study-option=--samples=200"
    )
    arguments = parser.parse_args()
    if not arguments.page_only:
        for each in arguments.names or zoo.names():
            run(each, arguments.study_option)
    write_pages()
    sys.exit(0)
