"""Measure the trade-off between likelihood and samples at each budget on the embedded models, for docs/beyond/mixed.md.

    python benchmarks/mixed.py                       all models
    python benchmarks/mixed.py fashion-simple --teacher-steps 200
    python benchmarks/mixed.py --page-only           rewrite the page from stored results

Runs `dpstride find --objective mixed`, which resumes after an interruption.
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
from typing import Any

from beyond import KEPT, ROOT, RUNS, results, save, table, write_page
from command import dpstride

from dpstride import zoo
from dpstride.report.front import Front


def run(name: str, weight: float, teacher_steps: int, budgets: str, samples: int, compile: bool) -> None:
    output = RUNS / "mixed" / f"{name}-{teacher_steps}"
    words = ["find", name, "fashion-train", "--heldout", "fashion-test", "-o", str(output.relative_to(ROOT))]
    words += ["--objective", "mixed", "--lambda", str(weight), "--teacher-steps", str(teacher_steps)]
    words += ["--budgets", budgets, "--samples", str(samples), "--heldout-samples", str(samples)]
    words += ["--compile"] if compile else []
    dpstride(words)
    save("mixed", name, {"command": "dpstride " + " ".join(words), **Front.load(output / "front.json").to_dict()})
    shutil.copy(output / "front.svg", KEPT / "mixed" / f"{name}.svg")


def page(found: dict[str, dict[str, Any]]) -> list[str]:
    """The ends of each trade-off and the point of λ, as held-out bits/dim / root of the trajectory cost."""
    rows = []
    for name, result in found.items():
        for number, (budget, points) in enumerate(result["front"].items()):
            weight = result["lambda"]
            (mine,) = [p for p in points if p["low"] <= weight and (p["high"] is None or weight < p["high"])]
            cells = [
                f"{p['heldout_bpd']:.3f} / {math.sqrt(p['trajectory_cost']):.4f}" for p in (points[0], mine, points[-1])
            ]
            rows.append([name if number == 0 else "", budget, len(points), *cells])
    (weight,) = {result["lambda"] for result in found.values()}
    shown = next(iter(found))
    return [
        f"Cells are held-out bits/dim / root of the trajectory cost. Command for the first model: `{found[shown]['command']}`.",
        table(["model", "steps", "paths", "λ = 0: lowest bits/dim", f"λ = {weight:g}", "lowest trajectory cost"], rows),
        f"![{shown}: the trade-off](results/mixed/{shown}.svg)",
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; all embedded ones by default")
    parser.add_argument("--lambda", dest="weight", type=float, default=10.0)
    parser.add_argument("--teacher-steps", type=int, default=1000)
    parser.add_argument("--budgets", default="5,10,20,40")
    parser.add_argument("--samples", type=int, default=128, help="images for choosing, and images for scoring")
    parser.add_argument("--compile", action="store_true", help="compile the networks")
    parser.add_argument("--page-only", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page_only:
        for each in arguments.names or zoo.names():
            run(
                each, arguments.weight, arguments.teacher_steps, arguments.budgets, arguments.samples, arguments.compile
            )
    write_page("mixed", page(results("mixed")))
    sys.exit(0)
