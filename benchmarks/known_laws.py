"""Compare paths where the distribution of samples is known, without a network or sampling, in less than a minute.

    python benchmarks/known_laws.py        writes its part of docs/beyond/samples.md

`laws.py` has the data and the distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from beyond import table, write_page
from laws import CHAINS, Chain, Gaussian, Line

from dpstride import Band, ForwardProcess, Statistics, band_costs, elbo_costs, solve, strides
from dpstride.objectives.band import DEFAULT, costs_over, data_deviation, relative_sigma

BUDGETS = (4, 8, 16, 32)
FORM_BUDGETS = (8, 32)
STRIDES = {"even": "even", "quadratic": "quadratic", "karras": "Karras"}
PLAIN, SQUARED = Band(), Band(2.0, 0.05, 20.0)  # the default without cap and evenness, and another weight
FORMS = {
    "posterior": ("posterior", False),
    "posterior, mean returned": ("posterior", True),
    "optimal": ("optimal", False),
    "optimal, mean returned": ("optimal", True),
}
Paths = dict[str, Callable[[int], Sequence[int]]]
Distance = Callable[[Statistics, Sequence[int], Chain], float]


def band_paths(
    statistics: Statistics, band: Band, variance: str, mean_returned: bool = False
) -> Callable[[int], list[int]]:
    """Paths of every budget; with ``mean_returned`` the last step t → 0 costs ½ M_t/σ_τ² at every τ below t.

    This is the cost of returning x̂_0(x_t), whatever the variance; `band_costs` instead counts a step that stops at τ.
    """
    costs = band_costs(statistics, band.exponent, (band.low, band.high), variance)  # type: ignore[arg-type]
    if not mean_returned:
        return solve(costs, max(BUDGETS)).path
    process, L = statistics.process, costs.L.copy()
    increments = np.diff(band.weights(relative_sigma(process, data_deviation(statistics))))
    below = np.append(0.0, np.cumsum(increments * (process.f[1:] / process.g[1:]) ** 2)[:-1])
    L[1:, 0] = 0.5 * statistics.squared_error.mean(axis=1)[1:] * below
    return solve(L, max(BUDGETS)).path


def paths_of(statistics: Statistics, chain: Chain) -> Paths:
    """Paths by name. Those of the ELBO are for the variance used for sampling, `posterior` with DDIM."""
    elbo = elbo_costs(statistics, chain.variance or "posterior")  # type: ignore[arg-type]
    found: Paths = {
        "default": solve(costs_over(DEFAULT, statistics), max(BUDGETS)).path,
        **{words_of(band): band_paths(statistics, band, "posterior") for band in (PLAIN, SQUARED)},
        "ELBO": solve(elbo, max(BUDGETS)).path,
    }
    return found | {words: partial(stride_path, statistics.process, name) for name, words in STRIDES.items()}


def words_of(band: Band) -> str:
    """The column heading of a band."""
    return f"p = {band.exponent:g}, {band.low:g}–{band.high:g}"


def stride_path(process: ForwardProcess, name: str, budget: int) -> Sequence[int]:
    """The path of a hand-made stride."""
    return strides.find(name).make(process, budget).steps


def row(values: Sequence[float]) -> list[str]:
    """Numbers to three digits, the smallest in bold."""
    shown = [f"{value:.0f}" if value >= 100.0 else f"{value:#.3g}" for value in values]
    return [f"**{text}**" if value == min(values) else text for text, value in zip(shown, values, strict=True)]


def compared(statistics: Statistics, distance: Distance) -> str:
    """A table with a row for every sampler and budget and a column for every kind of path."""
    rows = []
    for chain, words in CHAINS.items():
        paths = paths_of(statistics, chain)
        head = list(paths)
        rows += [[words, K, *row([distance(statistics, path(K), chain) for path in paths.values()])] for K in BUDGETS]
    return table(["sampler", "steps", *head], rows)


def forms(laws: dict[str, tuple[Statistics, Distance]]) -> list[str]:
    """A table of the forms of the cost, and how often each is the closest over both bands and all budgets."""
    rows, closest = [], {words: dict.fromkeys(FORMS, 0) for words in CHAINS.values()}
    for name, (statistics, distance) in laws.items():
        for band in (PLAIN, SQUARED):
            paths = {form: band_paths(statistics, band, *options) for form, options in FORMS.items()}
            for chain, words in CHAINS.items():
                for K in BUDGETS:
                    found = [distance(statistics, path(K), chain) for path in paths.values()]
                    closest[words][list(FORMS)[int(np.argmin(found))]] += 1
                    if band is PLAIN and K in FORM_BUDGETS:
                        rows.append([name, words, K, *row(found)])
    counts = [[words, *numbers.values()] for words, numbers in closest.items()]
    return [
        table(["data", "sampler", "steps", *FORMS], rows),
        f"How often each form is the closest of the four, over both data sets, both bands and "
        f"{', '.join(map(str, BUDGETS))} steps:",
        table(["sampler", *FORMS], counts),
    ]


def main() -> None:
    gaussian, line = Gaussian.of_falling_spectrum(), Line.of_three_modes()
    on_gaussian, on_line = gaussian.statistics(), line.statistics()
    parts = [
        "**Gaussian data, 1/f spectrum in 256 dimensions: squared Wasserstein distance**",
        compared(on_gaussian, gaussian.squared_wasserstein),
        "**The same Gaussian data: KL(data ‖ samples) in nats**",
        compared(on_gaussian, gaussian.divergence),
        "**A mixture of three Gaussians on a line: squared Wasserstein distance · 10³**",
        compared(on_line, lambda *of: 1000.0 * line.squared_wasserstein(*of)),
        f"**Forms of the cost with {words_of(PLAIN)}: squared Wasserstein distance (on the line · 10³)**",
        *forms(
            {
                "Gaussian": (on_gaussian, gaussian.squared_wasserstein),
                "line": (on_line, lambda *of: 1000.0 * line.squared_wasserstein(*of)),
            }
        ),
    ]
    write_page("samples", parts, section="known-laws")


if __name__ == "__main__":
    main()
