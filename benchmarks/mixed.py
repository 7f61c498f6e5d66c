"""What each budget can have of likelihood and of samples, on the embedded models, as docs/beyond/mixed.md shows it.

    python benchmarks/mixed.py                       all models
    python benchmarks/mixed.py fashion-simple --teacher-steps 200
    python benchmarks/mixed.py --page-only           write the page again from what is there

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


def section(name: str, result: dict[str, Any]) -> str:
    """Ends of each budget's trade-off, and the point of λ: held-out bits/dim / root of the trajectory cost."""
    rows = []
    for budget, points in result["front"].items():
        weight = result["lambda"]
        (mine,) = [p for p in points if p["low"] <= weight and (p["high"] is None or weight < p["high"])]
        cells = [
            f"{p['heldout_bpd']:.3f} / {math.sqrt(p['trajectory_cost']):.4f}" for p in (points[0], mine, points[-1])
        ]
        rows.append([budget, len(points), *cells])
    head = ["steps", "paths", "least bits/dim (λ = 0)", f"λ = {result['lambda']:g}", "least trajectory cost"]
    return "\n\n".join(
        [
            f"### {name}",
            f"`{result['command']}`: held-out bits/dim / root of the trajectory cost.",
            table(head, rows),
            f"![{name}: the trade-off](results/mixed/{name}.svg)",
        ]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; every embedded one when none is given")
    parser.add_argument("--lambda", dest="weight", type=float, default=10.0)
    parser.add_argument("--teacher-steps", type=int, default=1000)
    parser.add_argument("--budgets", default="5,10,20,40")
    parser.add_argument("--samples", type=int, default=128, help="images that choose, and images that score")
    parser.add_argument("--compile", action="store_true", help="compile the networks")
    parser.add_argument("--page-only", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page_only:
        for each in arguments.names or zoo.names():
            run(
                each, arguments.weight, arguments.teacher_steps, arguments.budgets, arguments.samples, arguments.compile
            )
    write_page("mixed", [section(name, result) for name, result in results("mixed").items()])
    sys.exit(0)
