"""Stage 8. The trade-off between bits/dim and trajectory cost for each budget: front.json, and its figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..reading.documents import document_of
from ..reading.types import check_types
from ..runs.writing import write_json
from .figures import save_figure

FORMAT = "dpstride-front-1"
NAME = "front.json"
COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")  # Okabe and Ito
MARKERS = "osD^v*"


@dataclass(frozen=True)
class FrontPoint:
    """A path that minimises bits/dim + λ · trajectory cost for every λ from ``low`` to ``high`` (None: no upper end)."""

    bpd: float
    heldout_bpd: float
    trajectory_cost: float
    low: float
    high: float | None
    steps: tuple[int, ...]

    def takes(self, weight: float) -> bool:
        """Return whether it is the best path for this λ."""
        return self.low <= weight and (self.high is None or weight < self.high)


@dataclass(frozen=True)
class Front:
    """These paths for each budget, from the least bits/dim to the least trajectory cost, and the chosen λ."""

    weight: float
    budgets: Mapping[int, tuple[FrontPoint, ...]]

    def to_dict(self) -> dict[str, Any]:
        """The front as JSON values."""
        points = {str(K): [asdict(point) for point in points] for K, points in self.budgets.items()}
        return {"format": FORMAT, "lambda": self.weight, "front": points}

    def save(self, folder: str | Path, run: str | None = None) -> Path:
        """Write front.json into ``folder``, with the id of the ``run`` if it has one."""
        return write_json(Path(folder) / NAME, self.to_dict() | ({} if run is None else {"run": run}))

    @classmethod
    def load(cls, path: str | Path) -> Front:
        """Read a file written by `save`."""
        with document_of(path, FORMAT, "a trade-off that `dpstride find` wrote") as document:
            budgets = {
                int(K): tuple(FrontPoint(**{**point, "steps": tuple(point["steps"])}) for point in points)
                for K, points in document["front"].items()
            }
            front = cls(document["lambda"], budgets)
            check_types(front)
            if not budgets or not all(budgets.values()):
                raise ValueError("it has no budgets, or one without paths")
            if any(point.trajectory_cost < 0.0 for points in budgets.values() for point in points):
                raise ValueError("a trajectory cost is negative")
        return front

    def draw(self, folder: str | Path) -> list[Path]:
        """Write front.svg and front.png; the best path of each budget for the chosen λ is a filled marker."""
        return save_figure(Path(folder) / "front", (6.4, 4.0), lambda figure: self._draw(figure.add_subplot()))

    def _draw(self, axes: Any) -> None:
        for row, (budget, points) in enumerate(self.budgets.items()):
            style: dict[str, Any] = {"color": COLOURS[row % len(COLOURS)], "marker": MARKERS[row % len(MARKERS)]}
            costs, bpd = [point.trajectory_cost for point in points], [point.heldout_bpd for point in points]
            axes.plot(costs, bpd, markerfacecolor="white", linewidth=1.2, label=f"{budget} steps", **style)
            for point in points:
                if point.takes(self.weight):
                    axes.plot([point.trajectory_cost], [point.heldout_bpd], linestyle="none", **style)
        axes.set_xlabel("trajectory cost ≈ mean squared distance from the teacher per dimension")
        axes.set_xscale("log")
        axes.set_ylabel("bits/dim, held-out")
        axes.set_title(f"Trade-off of each budget; filled: λ = {self.weight:g}", fontsize=10)
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
