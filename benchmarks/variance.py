"""Compare optimal variances with the paper's setting on the embedded models, for docs/beyond/variance.md.

    python benchmarks/variance.py                       all models, the network at every step of the grid
    python benchmarks/variance.py fashion-simple --samples 64 --rows 60
    python benchmarks/variance.py --page-only           rewrite the page from stored results

Paths are chosen and variances fitted on training images (seed 0) and scored on test images (seed 1). With --rows the network
runs only at that many steps, evenly spaced in the noise coordinate, and the others are interpolated. Statistics are kept in
runs/beyond.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
from beyond import RUNS, results, save, table, write_page
from numpy.typing import NDArray

from dpstride import CostTable, elbo_costs, estimate, solve, zoo
from dpstride.adaptive.loop import first_steps
from dpstride.statistics.coordinate import noise_coordinate

BUDGETS = (8, 16, 32, 64, 128, 256)
WORDS = {
    "paper": "as trained, decoder `upper` (the paper's)",
    "optimal": "`optimal`, decoder `optimal`",
    "learned_optimal": "`learned_optimal`, decoder `optimal`",
}


def run(name: str, samples: int, rows: int | None, compile: bool) -> None:
    folder = RUNS / "variance" / f"{name}-{samples}-{rows}"
    denoiser = zoo.load(name).faster(compile=compile)
    process = denoiser.process
    train, test = zoo.load_data("fashion-train")[:samples], zoo.load_data("fashion-test")[:samples]
    steps: NDArray[np.int64] | None = None
    if rows is not None and rows < process.T:
        steps = first_steps(noise_coordinate(process, 0.5 * train[0].numel()), rows)
    chosen, scored = (
        estimate(denoiser, data, None, seed, checkpoint=folder / f"{seed}.safetensors", indices=steps)
        for seed, data in enumerate((train, test))
    )
    paper, optimal = elbo_costs(chosen), elbo_costs(chosen, "optimal", "optimal")
    pairs = {
        "paper": (paper, elbo_costs(scored)),
        "optimal": (optimal, elbo_costs(scored, "optimal", "optimal", optimal.fitted)),
    }
    if denoiser.variance == "learned_range":
        scaled = elbo_costs(chosen, "learned_optimal", "optimal")
        pairs["learned_optimal"] = (scaled, elbo_costs(scored, "learned_optimal", "optimal", scaled.fitted))
    bpd: dict[str, dict[int, float]] = {}
    for setting, (choose, score) in pairs.items():
        solution = solve(choose, max(BUDGETS))
        bpd[setting] = {K: held_out(score, solution.path(K)) for K in BUDGETS}
        print(name, setting, {K: round(value, 3) for K, value in bpd[setting].items()}, flush=True)
    full = held_out(pairs["paper"][1], list(range(process.T, -1, -1)))
    save("variance", name, {"samples": samples, "rows": rows or process.T, "bpd": bpd, "full": full})


def held_out(costs: CostTable, path: Any) -> float:
    return costs.bpd(float(costs.step_nats(path).sum()))


def page(found: dict[str, dict[str, Any]]) -> list[str]:
    """A table of all models, and for each whether it is below the paper's setting and how 16 steps compare with all."""
    rows, sentences = [], []
    for name, result in found.items():
        full, bpd = result["full"], result["bpd"]
        for number, (setting, curve) in enumerate(bpd.items()):
            first = [f"{name} (all steps: {full:.3f})" if number == 0 else "", WORDS[setting]]
            rows.append(first + [f"{curve[str(K)]:.3f}" for K in BUDGETS])
        for setting in list(bpd)[1:]:
            above = [K for K in BUDGETS if bpd[setting][str(K)] >= bpd["paper"][str(K)]]
            listed = ", ".join(map(str, above))
            place = f"not below the paper's setting at {listed}" if above else "below the paper's setting at every K"
            gap = bpd[setting]["16"] - full
            sentences.append(
                f"- {name}, {setting}: {place}; 16 steps differ from all steps of that setting by {gap:+.3f}."
            )
    settings = {
        f"{result['samples']} training and {result['samples']} test images, {result['rows']:,} times"
        for result in found.values()
    }
    return [
        f"Held-out bits/dim of the DP stride; {'; '.join(sorted(settings))}.",
        table(["model", "variances", *BUDGETS], rows),
        "\n".join(sentences),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="models; all embedded ones by default")
    parser.add_argument("--samples", type=int, default=256, help="images for choosing and fitting, and for scoring")
    parser.add_argument("--rows", type=int, help="steps at which the network runs; all by default")
    parser.add_argument("--compile", action="store_true", help="compile the networks")
    parser.add_argument("--page-only", action="store_true")
    arguments = parser.parse_args()
    if not arguments.page_only:
        for each in arguments.names or zoo.names():
            run(each, arguments.samples, arguments.rows, arguments.compile)
    write_page("variance", page(results("variance")))
    sys.exit(0)
