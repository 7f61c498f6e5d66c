"""Any table: C[k, t] = min over s < t of C[k − 1, s] + L[t, s] for all k and t, as a blocked min-plus product.

Tiles of t are computed in ascending order. For a tile, everything from s below it is a min-plus product of two finished
panels, C[·, s] and L[t, s], computed like a matrix product: WIDTH budgets × ROWS rows in registers while s runs, panels
sized for the caches. Then the triangle of the tile itself is added. Only s < t and k − 1 <= s are visited, T³/6 sums
in all. Every number is a minimum of the same sums C[k − 1, s] + L[t, s], each rounded once, so neither the order nor
the number of threads can change a bit of it.

C and D are stored in blocks of WIDTH consecutive budgets, without the infinite half (k > t). The product only records the
stretch of STRETCH values of s in which the minimum was first met; s itself is then found by comparison.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..runs.bars import progress_bar
from ..runs.kernels import compiled
from .compiled import ROWS, WIDTH, relax, threads
from .paths import StoredPaths

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

TILE = 64  # rows of t per tile; a multiple of ROWS
PANEL = 128  # values of s per panel: 128 × WIDTH costs are a quarter of an L1 cache
DELAY = 2.0  # seconds after which a bar is worth showing
GROUP = 16  # blocks of budgets that use one panel of L in turn, while it is in the L2 cache


class Part(NamedTuple):
    """One tile of rows and one group of blocks of budgets, with its minima so far."""

    tile: int
    group: int
    new: Floats
    origin: Integers


def solve(
    L: Floats, base: Floats, last: int, paths: StoredPaths, workers: int | None = None, progress: bool = False
) -> Floats:
    """C[k, T] for k from 0 to `last`, from C[first, t] = base[t]; D is written to `paths`.

    `progress` shows a bar on a terminal if it takes more than a moment.
    """
    T, first = paths.T, paths.first
    C = np.full(len(paths.D), np.inf)
    C[paths.at(first, np.arange(first, T + 1))] = base[first:]

    tiles, groups = range(first, T + 1, TILE), range(0, len(paths.starts), GROUP)
    order = sorted(
        ((i, g) for i in range(len(tiles)) for g in range(len(groups)) if tiles[i] + TILE > first + WIDTH * groups[g]),
        key=sum,
    )
    done: dict[tuple[int, int], Future[None]] = {}

    def fill(i: int, g: int) -> None:
        for before in ((i - 1, g), (i, g - 1)):
            if before in done:
                done[before].result()
        size = GROUP * TILE * WIDTH
        part = Part(tiles[i], groups[g], np.full(size, np.inf), np.empty(size, np.int64))
        _relax_from_below(L, C, paths, part)
        _finish_tile(L, C, paths, part)

    workers = min(workers or threads(), len(order))
    # A tile of rows t has sums over all s below it, so tile i counts as i + 1.
    form = "{l_bar}{bar}| {elapsed}<{remaining}"
    with progress_bar(sum(i + 1 for i, _ in order), "solve", shown=progress, delay=DELAY, bar_format=form) as bar:
        if workers == 1:
            for i, g in order:
                fill(i, g)
                bar.update(i + 1)
        else:
            # A tile needs the tile of rows below it and the group of budgets below it. Submitted by diagonals, both come
            # before it, so waiting for them inside a thread cannot deadlock, and rarely takes long.
            with ThreadPoolExecutor(workers) as pool:
                for i, g in order:
                    done[i, g] = pool.submit(fill, i, g)
                for (i, _), future in done.items():
                    future.result()
                    bar.update(i + 1)

    costs = np.full(last + 1, np.inf)
    costs[first:] = C[paths.at(np.arange(first, last + 1), T)]
    return costs


@compiled
def _relax_from_below(L: Floats, C: Floats, paths: StoredPaths, part: Part) -> None:
    """new[b, t − tile, j] = min over s < tile of C[k − 1, s] + L[t, s], where k − 1 = first + WIDTH·b + j."""
    first, starts = paths.first, paths.starts
    tile, group, new, origin = part
    rows = min(TILE, L.shape[0] - tile)
    for panel in range(first + WIDTH * group, tile, PANEL):
        panel_end = min(panel + PANEL, tile)
        for b in range(group, min(group + GROUP, len(starts))):
            s = max(panel, first + WIDTH * b)
            at = starts[b] + WIDTH * s
            for row in range(0, rows, ROWS):
                to = WIDTH * (TILE * (b - group) + row)
                relax(L, (tile + row, s, panel_end - s, at, to), C, new, origin=origin)


@compiled
def _finish_tile(L: Floats, C: Floats, paths: StoredPaths, part: Part) -> None:
    """C[k, t] and D[k, t] for the rows of one tile: the minimum of `new` and of all s within the tile."""
    first, starts, D = paths.first, paths.starts, paths.D
    tile, group, new, origin = part
    tile_end = min(tile + TILE, L.shape[0])
    for b in range(group, min(group + GROUP, len(starts))):
        lowest_t = first + WIDTH * b
        inside = max(tile, lowest_t)
        from_inside = starts[b] + WIDTH * inside
        for t in range(tile, tile_end, ROWS):
            to = WIDTH * (TILE * (b - group) + t - tile)
            relax(L, (t, inside, t - inside, from_inside, to), C, new, origin=origin)
            for row in range(max(t, lowest_t), min(t + ROWS, tile_end)):
                at = starts[b] + WIDTH * row
                found = to + WIDTH * (row - t)
                for j in range(WIDTH):
                    if new[found + j] < np.inf:
                        s = origin[found + j]
                        while s < row - 1 and C[starts[b] + WIDTH * s + j] + L[row, s] != new[found + j]:
                            s += 1
                        # One budget more than its source: the last column belongs to the next block.
                        if j + 1 < WIDTH:
                            C[at + j + 1], D[at + j + 1] = new[found + j], s
                        elif b + 1 < len(starts):
                            next_at = starts[b + 1] + WIDTH * row
                            C[next_at], D[next_at] = new[found + j], s
                # The row just finished is a source for the rest of its ROWS; its effect on itself is not used.
                relax(L, (t, row, 1, at, to), C, new, origin=origin)
