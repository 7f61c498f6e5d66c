"""Any table: C[k, t] = min over s < t of C[k − 1, s] + L[t, s] for all k and t, as a blocked min-plus product.

The order is t in tiles, ascending. For a tile, everything from s below it is a min-plus product of two finished
panels, C[·, s] and L[t, s], done like a matrix product: WIDTH budgets × ROWS rows in registers while s runs, panels
sized for the caches. What remains is the triangle of the tile itself. Only s < t and k − 1 <= s are visited, T³/6 sums
in all. Every number is a minimum of the same sums C[k − 1, s] + L[t, s], each rounded once, so neither the order nor
the number of threads can change a bit of it.

C is kept in blocks of WIDTH consecutive budgets, without the infinite half (k > t), and no argmins are kept: half the
size of the table in all. A path is found again by comparing.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .compiled import ROWS, WIDTH, compiled, relax, threads

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

TILE = 64  # rows of t per tile; a multiple of ROWS
PANEL = 256  # values of s per panel: 256 × WIDTH costs fill half of a first-level cache
GROUP = 16  # blocks of budgets that use one panel of L in turn, while it is in the second-level cache
CHUNK = 4 * TILE  # rows of t, with a group of blocks, that one thread does at a time


@dataclass(frozen=True)
class CostPaths:
    """C[k, t] of a solved table, for k from `first` to `last`.

    Block b holds k = first + WIDTH·b, …, for t >= first + WIDTH·b; C[k, t] is values[starts[b] + WIDTH·t + j], with
    k = first + WIDTH·b + j.
    """

    L: Floats
    pairs: Floats | None
    first: int
    last: int
    starts: Integers
    values: Floats

    def final_costs(self) -> Floats:
        """C[k, T] for every k from 0 to the last."""
        T = self.L.shape[0] - 1
        k = np.arange(self.first, self.last + 1)
        block, column = np.divmod(k - self.first, WIDTH)
        costs = np.full(self.last + 1, np.inf)
        costs[self.first :] = self.values[self.starts[block] + WIDTH * T + column]
        return costs

    def read(self, budget: int) -> list[int]:
        """The best path of this budget, from T down to 0."""
        path: list[int] = _read_path(self.L, budget, self.first, self.starts, self.values).tolist()
        if path[-1] < 0:
            raise ValueError("L was changed after solve(), so its paths can no longer be read. Solve again.")
        if self.pairs is not None:
            t2 = path[-1]
            path.append(1 + int(self.pairs[t2, 1:t2].argmin()))
        return [*path, 0]


def solve(L: Floats, pairs: Floats | None, K: int, workers: int | None = None) -> CostPaths:
    """C[k, t] for k up to K and every t, from a checked table."""
    T = L.shape[0] - 1
    if pairs is None:
        first, base = 1, L[:, 0]
    else:
        first, base = 2, np.full(T + 1, np.inf)
        for t in range(2, T + 1):
            base[t] = pairs[t, 1:t].min()
    lowest_t = np.arange(first, K + 1, WIDTH)
    sizes = WIDTH * (T + 1 - lowest_t)
    starts = np.cumsum(sizes) - sizes - WIDTH * lowest_t
    values = np.full(sizes.sum(), np.inf)
    values[: sizes[0] : WIDTH] = base[first:]

    # A chunk needs the chunk of rows below it and the group of budgets below it. Sent to the threads by diagonals, both
    # were sent before it, so waiting for them inside the thread can not lock up, and rarely waits.
    chunks = range(first, T + 1, CHUNK)
    groups = range(0, len(starts), GROUP)
    order = sorted(((i, g) for i in range(len(chunks)) for g in range(len(groups))), key=sum)
    done: dict[tuple[int, int], Future[None]] = {}

    def fill(i: int, g: int) -> None:
        for before in ((i - 1, g), (i, g - 1)):
            if before in done:
                done[before].result()
        _fill(L, chunks[i], groups[g], first, starts, values)

    with ThreadPoolExecutor(workers or threads()) as pool:
        for i, g in order:
            done[i, g] = pool.submit(fill, i, g)
    for future in done.values():
        future.result()
    return CostPaths(L, pairs, first, K, starts, values)


@compiled
def _fill(L: Floats, chunk: int, group: int, first: int, starts: Integers, values: Floats) -> None:
    """C[k, t] for the rows and budgets of one chunk and group."""
    group_end = min(group + GROUP, len(starts))
    new = np.empty(GROUP * TILE * WIDTH)
    for tile in range(chunk, min(chunk + CHUNK, L.shape[0]), TILE):
        if tile + TILE > first + WIDTH * group:
            new[:] = np.inf
            _relax_from_below(L, tile, group, group_end, first, starts, values, new)
            _finish_tile(L, tile, group, group_end, first, starts, values, new)


@compiled
def _relax_from_below(
    L: Floats, tile: int, group: int, group_end: int, first: int, starts: Integers, values: Floats, new: Floats
) -> None:
    """new[b, t − tile, j] = min over s < tile of C[k − 1, s] + L[t, s], where k − 1 = first + WIDTH·b + j."""
    rows = min(TILE, L.shape[0] - tile)
    for panel in range(first + WIDTH * group, tile, PANEL):
        panel_end = min(panel + PANEL, tile)
        for b in range(group, group_end):
            s = max(panel, first + WIDTH * b)
            for row in range(0, rows, ROWS):
                to = WIDTH * (TILE * (b - group) + row)
                relax(L, tile + row, s, panel_end - s, values, starts[b] + WIDTH * s, new, to)


@compiled
def _finish_tile(
    L: Floats, tile: int, group: int, group_end: int, first: int, starts: Integers, values: Floats, new: Floats
) -> None:
    """C[k, t] for the rows of one tile: the minimum in `new`, and what comes from s within the tile."""
    tile_end = min(tile + TILE, L.shape[0])
    for b in range(group, group_end):
        lowest_t = first + WIDTH * b
        s = max(tile, lowest_t)
        for t in range(tile, tile_end, ROWS):
            to = WIDTH * (TILE * (b - group) + t - tile)
            relax(L, t, s, t - s, values, starts[b] + WIDTH * s, new, to)
            for row in range(max(t, lowest_t), min(t + ROWS, tile_end)):
                to = WIDTH * (TILE * (b - group) + row - tile)
                for source in range(max(t, lowest_t), row):
                    at = starts[b] + WIDTH * source
                    for j in range(WIDTH):
                        new[to + j] = min(new[to + j], values[at + j] + L[row, source])
                # One budget more than its source: the last column belongs to the next block.
                at = starts[b] + WIDTH * row
                values[at + 1 : at + WIDTH] = new[to : to + WIDTH - 1]
                if b + 1 < len(starts) and row >= lowest_t + WIDTH:
                    values[starts[b + 1] + WIDTH * row] = new[to + WIDTH - 1]


@compiled
def _read_path(L: Floats, budget: int, first: int, starts: Integers, values: Floats) -> Integers:
    """The best path from T while more than `first` steps are left; −1 at its end if the table does not fit C."""
    path = np.full(budget - first + 1, -1)
    path[0] = t = L.shape[0] - 1
    for k in range(budget, first, -1):
        cost = values[starts[(k - first) // WIDTH] + WIDTH * t + (k - first) % WIDTH]
        source = starts[(k - 1 - first) // WIDTH] + (k - 1 - first) % WIDTH
        for s in range(k - 1, t):
            if values[source + WIDTH * s] + L[t, s] == cost:
                path[budget - k + 1] = t = s
                break
        else:
            path[-1] = -1
            break
    return path
