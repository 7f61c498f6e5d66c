"""Write the paper's table and sample grids for every embedded model to docs/zoo.md.

    python benchmarks/zoo.py                      all models: half an hour on two cores
    python benchmarks/zoo.py --every-step         the same, evaluating the network at every step: about two hours
    python benchmarks/zoo.py fashion-simple       one of them
    python benchmarks/zoo.py --page-only          only rewrite the page from existing results

For each model, runs the commands a user would type (`dpstride find`, `dpstride sample`); they resume after an
interruption. The tables are then written between the page's markers.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from command import dpstride

from dpstride import zoo
from dpstride.evaluate.comparison import Comparison

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "zoo.md"
FIGURES = ROOT / "docs" / "figures" / "zoo"
RUNS = ROOT / "runs" / "zoo"
FEW, GRID = 32, 16
BUDGETS = (8, 16, 32, 64, 128, 256)
# Watson et al. (2021), the two tables of likelihoods: DP strides of 32 steps against all 4,000.
PAPER_GAPS = "0.10 on ImageNet 64×64 (L_hybrid), 0.22 and 0.23 on CIFAR-10 (L_hybrid and L_vlb)"


def run(name: str, samples: int, every_step: bool) -> None:
    output = RUNS / name
    words = ["find", name, "fashion-train", "--heldout", "fashion-test", "-o", str(output)]
    words += ["--samples", str(samples), "--heldout-samples", str(samples), *(["--every-step"] if every_step else [])]
    dpstride(words)
    for steps, label in ((FEW, str(FEW)), (zoo.describe(name)["T"], "all")):
        picture = FIGURES / f"{name}-{label}.png"
        dpstride(
            ["sample", name, str(output / "schedules.json"), "-k", str(steps), "-n", str(GRID), "-o", str(picture)]
        )


def write_page() -> None:
    """Write the sections of the models that were run here; other sections are left unchanged."""
    before, begin, rest = PAGE.read_text(encoding="utf-8").partition("<!-- zoo:begin -->\n")
    body, end, after = rest.partition("<!-- zoo:end -->")
    sections = {part.split("\n")[0].removeprefix("### "): part for part in re.split(r"\n(?=### )", body)}
    sections |= {name: _section(name) for name in zoo.names() if (RUNS / name / "comparison.json").is_file()}
    body = "\n".join(sections[name] for name in zoo.names() if name in sections)
    PAGE.write_text(before + begin + body + end + after, encoding="utf-8")


def _section(name: str) -> str:
    comparison, facts = Comparison.load(RUNS / name / "comparison.json"), zoo.describe(name)
    T = comparison.T
    lines = [f"### {name}", ""]
    held_out = facts["held_out"]
    lines += [
        f"All steps, on {held_out['images']:,} test images: {held_out['bpd']:.3f} ± {held_out['standard_error']:.3f} "
        f"bits/dim. The paths below were chosen on {comparison.samples['chosen']} training images and scored on "
        f"{comparison.samples['heldout']} test images; the strides share images and noise, so their differences "
        "are far more certain than the individual numbers.",
        "",
        "| stride | " + " | ".join(map(str, BUDGETS)) + f" | all {T:,} |",
        "|---|" + "---|" * (len(BUDGETS) + 1),
    ]
    for stride, curve in comparison.curves.items():
        cells = [f"{curve[K][0]:.3f} ± {curve[K][1]:.3f}" for K in (*BUDGETS, T)]
        lines.append(f"| {'DP' if stride == 'dp' else stride} | " + " | ".join(cells) + " |")
    gap = comparison.curves["dp"][FEW][0] - comparison.curves["dp"][T][0]
    lines += ["", f"DP at {FEW} steps minus all {T:,}: {gap:+.3f} bits/dim. {comparison.sentence()}"]
    if T == 4000:
        lines += [f"The paper's gaps at T = 4000: {PAPER_GAPS}."]
    lines += [f"{warning}" for warning in comparison.warnings]
    grids = {str(FEW): f"{FEW} DP steps", "all": f"all {T:,} steps"}
    grids = {label: title for label, title in grids.items() if (FIGURES / f"{name}-{label}.png").is_file()}
    lines += ["", "| " + " | ".join(grids.values()) + " |", "|---" * len(grids) + "|"]
    cells = (f"![{name}, {title}](figures/zoo/{name}-{label}.png)" for label, title in grids.items())
    return "\n".join([*lines, "| " + " | ".join(cells) + " |", "", ""])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(zoo.names()))
    parser.add_argument(
        "--samples", type=int, default=128, help="images to choose paths on, and images to score them on"
    )
    parser.add_argument("--every-step", action="store_true")
    parser.add_argument("--page-only", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page_only:
        for each in arguments.names:
            run(each, arguments.samples, arguments.every_step)
    write_page()
    sys.exit(0)
