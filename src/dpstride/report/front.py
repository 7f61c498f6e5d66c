"""Stage 8. The trade-off between bits/dim and the trajectory cost, as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
MARKERS = "osD^v*"


def save_front(front: Mapping[int, Sequence[Mapping[str, Any]]], weight: float, folder: str | Path) -> list[Path]:
    """Write front.svg and front.png: the corners of each budget's trade-off; the one that λ = ``weight`` takes is filled."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for row, (budget, points) in enumerate(front.items()):
        style: dict[str, Any] = {"color": COLOURS[row % len(COLOURS)], "marker": MARKERS[row % len(MARKERS)]}
        bpd, cost = ([point[name] for point in points] for name in ("heldout_bpd", "trajectory_cost"))
        axes.plot(cost, bpd, markerfacecolor="white", linewidth=1.2, label=f"{budget} steps", **style)
        for point in points:
            low, high = point["lambda"]
            if low <= weight and (high is None or weight < high):
                axes.plot([point["trajectory_cost"]], [point["heldout_bpd"]], linestyle="none", **style)
    axes.set_xlabel("trajectory cost: about the mean square distance from the teacher per dimension")
    axes.set_xscale("log")
    axes.set_ylabel("bits/dim, held-out")
    axes.set_title(f"What each budget can have; filled: λ = {weight:g}", fontsize=10)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    written = [Path(folder) / f"front.{suffix}" for suffix in ("svg", "png")]
    for path in written:
        figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return written
