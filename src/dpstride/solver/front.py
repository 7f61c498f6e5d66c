"""The trade-off between two costs that are both sums over steps: every corner of the convex hull of all paths' costs.

Bisection of the weight (Aneja and Nair 1979): the two ends minimise one cost each; between two neighbours on the hull, the
weight at which they cost the same either finds a path below their line, a corner between them, or proves there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

MOST = 64  # corners per budget: a figure shows no more, and each takes one solution


@dataclass(frozen=True)
class Corner:
    """A path on the hull, its two costs, and the weights λ between which it is the best of first + λ · second."""

    first: float
    second: float
    path: tuple[int, ...]
    weights: tuple[float, float]


def corners(
    best: Callable[[float, float], tuple[int, ...]], costs: Callable[[tuple[int, ...]], tuple[float, float]]
) -> list[Corner]:
    """The corners from least first cost to least second cost.

    Args:
        best: (a, b) → the path of least a · first + b · second.
        costs: the two costs of a path.
    """
    found = {path: costs(path) for path in (best(1.0, 0.0), best(0.0, 1.0))}
    # Among ties at an end, bisection finds the path that is better in the other cost.
    (x0, y0), (x1, y1) = found.values() if len(found) == 2 else (next(iter(found.values())),) * 2
    work = [((x0, y0), (x1, y1))]
    while work and len(found) < MOST:
        (xa, ya), (xb, yb) = work.pop(0)
        if not (xb > xa and ya > yb):
            continue
        a, b = ya - yb, xb - xa  # the line through both costs the same everywhere
        path = best(a, b)
        x, y = costs(path)
        scale = max(abs(a * xa), abs(b * ya), a * b)
        if path not in found and a * x + b * y < a * xa + b * ya - 1e-12 * scale:
            found[path] = (x, y)
            work += [((xa, ya), (x, y)), ((x, y), (xb, yb))]
    ordered = _hull(sorted((x, y, path) for path, (x, y) in found.items()))
    slopes = [(xb - xa) / (ya - yb) for (xa, ya, _), (xb, yb, _) in pairwise(ordered)]
    limits = [0.0, *slopes, float("inf")]
    return [Corner(x, y, path, (limits[i], limits[i + 1])) for i, (x, y, path) in enumerate(ordered)]


def _hull(points: list[tuple[float, float, tuple[int, ...]]]) -> list[tuple[float, float, tuple[int, ...]]]:
    """The lower left hull: falling in the second cost, convex."""
    kept: list[tuple[float, float, tuple[int, ...]]] = []
    for x, y, path in points:
        if kept and y >= kept[-1][1]:
            continue
        while len(kept) >= 2:
            (xa, ya, _), (xb, yb, _) = kept[-2:]
            if (yb - ya) * (x - xa) < (y - ya) * (xb - xa):
                break
            kept.pop()
        kept.append((x, y, path))
    return kept
