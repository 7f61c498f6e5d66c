"""Stage 8. Figures of a study: curves, paths, samples, distances, ablation, and distance against bits/dim.

Drawn from results.json, schedules.json and the images saved with the features; nothing is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import strides
from ..evaluate.comparison import STRIDES
from ..options import BEST, COMPARED_STRIDES
from ..reading.text import printable
from ..schedule import ScheduleSet
from ..study.plan import ALL, GRID_IMAGES, grid_budgets
from ..study.results import Distance, StudyResults
from .figures import STYLES, save_figure, save_figures
from .tables import kernel_name, name_of

MARKERS = {name: strides.find(name).marker for name in COMPARED_STRIDES} | {BEST: "o", ALL: "*"}
ALL_STYLE = {"color": "#000000", "label": "all steps"}
# One hue from light to dark, since budgets have an order; distinguishable in grey, too.
BUDGET_COLOURS = ("#b9dbe8", "#8bbdd9", "#5a9bc5", "#3277ab", "#18548a", "#08306b")
REAL = "real images"
Images = npt.NDArray[np.uint8]


def save_study_figures(
    results: StudyResults, schedules: ScheduleSet, folder: str | Path, features: Path | None = None
) -> list[Path]:
    """Write every figure as .svg and .png into ``folder``/figures; return their paths.

    Samples are read from ``features``, by default the subfolder of that name.
    """
    target = Path(folder) / "figures"
    written = save_figures(results.comparison, schedules, target)
    figures: list[tuple[str, tuple[float, float], Callable[[Any], None]]] = []
    rows = sample_rows(results, features or Path(folder) / "features")
    if rows:
        figures.append(("samples", _grid_size(rows), lambda figure: _draw_samples(figure, rows, results)))
    if results.distances:
        figures.append(("distances", (9.6, 4.0), lambda figure: _draw_distances(figure, results)))
        figures.append(("agreement", (6.4, 4.4), lambda figure: _draw_agreement(figure, results)))
    if results.ablation is not None and len(results.ablation.sizes) > 1:
        figures.append(("ablation", (6.4, 4.0), lambda figure: _draw_ablation(figure, results)))
    for name, size, draw in figures:
        written += save_figure(target / name, size, draw)
    return written


# --- samples --------------------------------------------------------------------------------------------------------------


def sample_rows(results: StudyResults, features: Path) -> list[tuple[str, Images]]:
    """Named rows of images: real images, the strides of each budget from the same seeds, and all steps."""
    from ..evaluate.stream import load_features

    def row(name: str, file: str) -> list[tuple[str, Images]]:
        path = features / f"{file}.safetensors"
        images = load_features(path).images[:GRID_IMAGES] if path.is_file() else np.zeros((0, 1, 1, 1), dtype=np.uint8)
        return [(name, images)] if len(images) and images.shape[1] in (1, 3) else []

    rows = row(REAL, "reference")
    for budget in grid_budgets(results.T):
        for stride in STRIDES:
            rows += row(f"{budget} steps, {'DP' if stride == BEST else stride}", f"{stride}-{budget}")
    rows += row(f"all {results.T:,} steps", f"{ALL}-{results.T}")
    return rows if len(rows) > 1 else []


def _grid_size(rows: list[tuple[str, Images]]) -> tuple[float, float]:
    canvas, _ = _composed(rows)
    width = 5.6
    return width + 1.6, width * canvas.shape[0] / canvas.shape[1] + 0.5


def _composed(rows: list[tuple[str, Images]]) -> tuple[Images, list[float]]:
    """All rows on one white canvas [H, W, C] with gaps between budgets, and the centre line of each row."""
    channels, height, width = rows[-1][1].shape[1:]
    gap = max(1, height // 14)
    blocks, middles, top = [], [], 0
    previous = rows[0][0]
    for name, images in rows:
        if name.partition(",")[0] != previous.partition(",")[0]:
            blocks.append(np.full((4 * gap, GRID_IMAGES * (width + gap), channels), 255, dtype=np.uint8))
            top += 4 * gap
        previous = name
        row = np.full((height + gap, GRID_IMAGES * (width + gap), channels), 255, dtype=np.uint8)
        for i, image in enumerate(images):
            row[:height, i * (width + gap) : i * (width + gap) + width] = np.moveaxis(image, 0, -1)
        blocks.append(row)
        middles.append(top + height / 2 - 0.5)
        top += height + gap
    return np.concatenate(blocks), middles


def _draw_samples(figure: Any, rows: list[tuple[str, Images]], results: StudyResults) -> None:
    canvas, middles = _composed(rows)
    axes = figure.add_subplot()
    grey = canvas.shape[-1] == 1
    axes.imshow(canvas[..., 0] if grey else canvas, cmap="gray" if grey else None, vmin=0, vmax=255)
    axes.set_yticks(middles, [name for name, _ in rows], fontsize=8)
    axes.set_xticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    where = "below the real images a" if rows[0][0] == REAL else "a"
    axes.set_title(
        f"{name_of(results)}\n{where} column has one seed, {results.sampling}",
        fontsize=9,
        parse_math=False,
    )


# --- distances --------------------------------------------------------------------------------------------------------------


def _draw_distances(figure: Any, results: StudyResults) -> None:
    left, right = figure.subplots(1, 2)
    _draw_distance(left, results, results.distance_name, lambda each: each.frechet)
    _draw_distance(
        right, results, kernel_name(results), lambda each: each.kernel, error=lambda each: each.kernel_standard_error
    )
    counts = sorted({each.samples for each in results.distances})
    samples = " or ".join(f"{count:,}" for count in counts)
    figure.suptitle(
        f"{name_of(results)}: {samples} samples against {results.data['reference']['images']:,} real images",
        fontsize=10,
        parse_math=False,
    )
    left.legend(frameon=False, fontsize=8)


def _draw_distance(
    axes: Any,
    results: StudyResults,
    name: str,
    value: Callable[[Distance], float],
    error: Callable[[Distance], float] | None = None,
) -> None:
    budgets = sorted({each.budget for each in results.distances})
    shown = results.comparable if error is None else results.distances
    for i, stride in enumerate(STRIDES):
        found = [each for K in budgets if (each := results.distance_at(stride, K)) in shown and each is not None]
        if not found:
            continue
        style = {key: STYLES[stride][key] for key in ("color", "linestyle", "label")}
        axes.errorbar(
            [each.budget * (1.0 if error is None else 1.04 ** (i - 1)) for each in found],  # bars side by side
            [value(each) for each in found],
            yerr=None if error is None else [_shown(2.0 * error(each)) for each in found],
            marker=MARKERS[stride],
            markersize=5,
            linewidth=1.6,
            elinewidth=1.0,
            capsize=2,
            **style,
        )
    for each in (each for each in results.distances if each not in shown):  # biased, so not joined to the lines
        axes.plot(each.budget, value(each), MARKERS[ALL], markersize=10, **_apart(each))
    measured = [value(each) for each in results.distances]
    if results.floor is not None:
        label = f"real images, {results.floor.samples:,} held out"
        axes.axhline(value(results.floor), color="0.5", linewidth=0.9, linestyle="-.", zorder=0, label=label)
        measured.append(value(results.floor))
    _scale(axes, measured)
    axes.set_xscale("log", base=2)
    axes.set_xticks(budgets, ["all" if K == results.T else str(K) for K in budgets])
    axes.xaxis.minorticks_off()
    axes.set_xlabel("refinement steps K")
    axes.set_ylabel(printable(name, 60), fontsize=9, parse_math=False)
    if error is not None:
        axes.set_title("bars: ± 2 standard errors", fontsize=8, loc="right")
    axes.spines[["top", "right"]].set_visible(False)


def _apart(each: Distance) -> dict[str, Any]:
    """Style of a distance of fewer samples than the others."""
    return {
        "color": "0.4",
        "fillstyle": "none",
        "label": f"{'all steps' if each.stride == ALL else each.stride}, {each.samples:,} samples only",
    }


def _scale(axes: Any, measured: list[float]) -> None:
    """Make the axis logarithmic, with plain numbers at 1, 2 and 5, if distances span more than a decade."""
    if min(measured) <= 0.0 or max(measured) <= 10.0 * min(measured):
        return
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, position: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _shown(error: float) -> float:
    return 0.0 if math.isnan(error) else error


def _draw_agreement(figure: Any, results: StudyResults) -> None:
    axes = figure.add_subplot()
    for stride in (*STRIDES, ALL):
        found = [each for each in results.distances if each.stride == stride and each.bpd is not None]
        if not found:
            continue
        style = ALL_STYLE if stride == ALL else {key: STYLES[stride][key] for key in ("color", "label")}
        axes.plot(
            [each.bpd for each in found],
            [each.frechet for each in found],
            linestyle="none" if stride == ALL else STYLES[stride]["linestyle"],
            linewidth=0.9,
            marker=MARKERS[stride],
            markersize=11 if stride == ALL else 6,
            **style if found[0] in results.comparable else _apart(found[0]),
        )
        for i, each in enumerate(found if stride != ALL else ()):
            place = (5, 4 if i % 2 == 0 else -9)  # alternately above and below, since points may be close
            axes.annotate(
                str(each.budget), (each.bpd, each.frechet), xytext=place, textcoords="offset points", fontsize=7,
                color=style["color"],
            )  # fmt: skip
    measured = [each.frechet for each in results.distances]
    _scale(axes, measured)
    axes.set_xlabel("bits/dim, held-out (labels: steps)")
    axes.set_ylabel(printable(results.distance_name, 60), parse_math=False)
    rho = math.nan if results.agreement is None else results.agreement.correlation
    rank = "" if math.isnan(rho) else f", rank correlation {rho:+.2f}"
    axes.set_title(f"{name_of(results)}{rank}", fontsize=10, parse_math=False)
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


# --- ablation ----------------------------------------------------------------------------------------------------------------


def _draw_ablation(figure: Any, results: StudyResults) -> None:
    ablation = results.ablation
    assert ablation is not None
    axes = figure.add_subplot()
    colours = BUDGET_COLOURS[-len(ablation.budgets) :]
    sizes = ablation.sizes[:-1]
    for i, (budget, colour) in enumerate(zip(ablation.budgets, colours, strict=False)):
        excess = [ablation.excess(size, budget) for size in sizes]
        means = [float(np.mean(each)) for each in excess]
        # Side by side, so that spreads can be distinguished.
        at = [size * 1.035 ** (i - len(ablation.budgets) / 2) for size in sizes]
        spread = [
            [mean - min(each) for mean, each in zip(means, excess, strict=True)],
            [max(each) - mean for mean, each in zip(means, excess, strict=True)],
        ]
        axes.errorbar(
            at,
            means,
            yerr=spread,
            color=colour,
            marker="o",
            markersize=4,
            linewidth=1.2,
            capsize=2,
            label=f"K = {budget}",
        )
    axes.axhline(0.0, color="0.6", linewidth=0.8, zorder=0)
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.xaxis.minorticks_off()
    what = "samples" if ablation.unit == "sample" else f"samples (in blocks of {ablation.unit_samples:.3g})"
    axes.set_xlabel(f"{what} that choose the path")
    axes.set_ylabel(f"held-out bits/dim above {ablation.sizes[-1]:,} samples")
    axes.set_title(
        f"{name_of(results)}: mean and range over {len(ablation.bpd[0])} draws", fontsize=10, parse_math=False
    )
    axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
