"""Results of a study, as one JSON file from which every table and figure is drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__, samplers
from ..evaluate.ablation import Ablation
from ..evaluate.comparison import Comparison
from ..reading.documents import document_of
from ..reading.types import check_types
from ..runs.writing import without_nan, write_text
from .agreement import Agreement
from .plan import ALL

FORMAT = "dpstride-study-1"
DIGITS = 6  # significant digits; further ones are noise, since standard errors are in the third


@dataclass(frozen=True)
class Distance:
    """Distance of one path's samples from real images, with the number of ``samples``, on which it depends."""

    stride: str
    budget: int
    samples: int
    frechet: float
    kernel: float
    kernel_standard_error: float
    bpd: float | None = None
    bpd_standard_error: float | None = None


@dataclass(frozen=True)
class StudyResults:
    """Everything that tables and figures of a study need, except the sample images.

    ``curves[stride][budget]`` are held-out bits/dim with standard errors, ``paths[budget]`` the times that the DP stride
    visits. ``features`` describes the extractor of ``distances``, or is None without one; ``floor`` is the distance of real
    held-out images, which no samples can be expected to beat.
    """

    model: Mapping[str, Any]
    process: Mapping[str, Any]
    data: Mapping[str, Any]
    options: Mapping[str, Any]
    settings: Mapping[str, Any]
    curves: dict[str, dict[int, tuple[float, float]]]
    paths: dict[int, tuple[float, ...]]
    features: Mapping[str, Any] | None = None
    distances: tuple[Distance, ...] = ()
    floor: Distance | None = None
    ablation: Ablation | None = None
    agreement: Agreement | None = None
    notes: tuple[str, ...] = ()
    version: str = field(default=__version__)
    run: str | None = None  # id of the run, the same in all its files

    @property
    def T(self) -> int:
        """Number of grid steps."""
        return int(self.process["T"])

    @property
    def comparison(self) -> Comparison:
        """The curves as a `Comparison`."""
        return Comparison(
            T=self.T,
            curves=self.curves,
            chosen={},
            model=self.model,
            options=self.options,
            samples={"chosen": self.data["choosing"]["samples"], "heldout": self.data["heldout"]["samples"]},
            seeds={"chosen": self.data["choosing"]["seed"], "heldout": self.data["heldout"]["seed"]},
        )

    @property
    def distance_name(self) -> str:
        """Name of the Fréchet distance on these features."""
        return str(self.features["distance"]) if self.features else "distance"

    @property
    def sampling(self) -> str:
        """Describe how samples were drawn."""
        sampler, eta = self.settings["sampler"], self.settings.get("eta", 0.0)
        rule = samplers.find(sampler)
        return f"{rule.words} sampling, eta {eta:g}" if rule.takes_eta else f"{sampler} sampling"

    @property
    def sentence(self) -> str | None:
        """State in words whether bits/dim and the distance agree."""
        return None if self.agreement is None else self.agreement.sentence(f"the {self.distance_name}")

    def check(self) -> None:
        """Raise if something that tables and figures need is missing, as in a damaged file."""
        self.comparison.check()
        for name, kind in (("variance", str), ("decoder", str)):
            if not isinstance(self.options.get(name), kind):
                raise ValueError(f"options has no {name}")
        for part in ("choosing", "heldout"):
            if not all(isinstance(self.data[part][name], int) for name in ("samples", "seed")):
                raise ValueError(f"data lacks samples or seed of {part}")
        if self.distances and not (
            isinstance(self.settings.get("sampler"), str) and isinstance(self.data["reference"]["images"], int)
        ):
            raise ValueError("there are distances, but neither a sampler nor real images")
        if self.features is not None and not isinstance(self.features.get("distance"), str):
            raise ValueError("features lack the name of their distance")
        if (table := self.ablation) is not None and (
            len(table.bpd) != len(table.sizes)
            or not all(size and all(len(repeat) == len(table.budgets) for repeat in size) for size in table.bpd)
        ):
            raise ValueError("the ablation does not have one number per size and budget")
        if any(not 1 <= each.budget <= self.T for each in self.distances):
            raise ValueError(f"a distance has a budget outside 1 … {self.T}")

    @property
    def comparable(self) -> tuple[Distance, ...]:
        """Distances with as many samples as those of strides; with fewer, a Fréchet distance is biased upwards."""
        return tuple(each for each in self.distances if each.samples == self.usual_samples)

    @property
    def usual_samples(self) -> int:
        """Number of samples of the distances of strides, or of all distances if there are none of strides."""
        counts = [each.samples for each in self.distances if each.stride != ALL]
        return max(counts or [each.samples for each in self.distances], default=0)

    def distance_at(self, stride: str, budget: int) -> Distance | None:
        """The distance of a stride at a budget; at T steps all strides have the same."""
        wanted = {stride, ALL} if budget == self.T else {stride}
        return next((each for each in self.distances if each.stride in wanted and each.budget == budget), None)

    def save(self, path: str | Path) -> None:
        """Write as JSON, with six significant digits."""
        document = asdict(self)
        document["curves"] = {stride: _columns(curve) for stride, curve in self.curves.items()}
        write_text(path, _text(without_nan({"format": FORMAT, **document}, DIGITS)))

    @classmethod
    def load(cls, path: str | Path) -> StudyResults:
        """Read a file written by `save`."""
        with document_of(path, FORMAT, "results that `dpstride study` wrote") as document:
            document["curves"] = {
                stride: {
                    budget: (bpd, math.nan if error is None else error)
                    for budget, bpd, error in zip(curve["budgets"], curve["bpd"], curve["standard_error"], strict=True)
                }
                for stride, curve in document["curves"].items()
            }
            document["paths"] = {int(budget): tuple(times) for budget, times in document["paths"].items()}
            document["distances"] = tuple(_distance(each) for each in document["distances"])
            document["floor"] = None if document["floor"] is None else _distance(document["floor"])
            document["ablation"] = None if document["ablation"] is None else _ablation(document["ablation"])
            agreement = document["agreement"]
            document["agreement"] = (
                None if agreement is None else Agreement(**agreement | _nan(agreement, "correlation"))
            )
            document["notes"] = tuple(document["notes"])
            results = cls(**document)
            check_types(results)
            results.check()
        return results


def _columns(curve: Mapping[int, tuple[float, float]]) -> dict[str, list[Any]]:
    budgets = sorted(curve)
    return {
        "budgets": budgets,
        "bpd": [curve[budget][0] for budget in budgets],
        "standard_error": [curve[budget][1] for budget in budgets],
    }


def _distance(document: dict[str, Any]) -> Distance:
    return Distance(**document | _nan(document, "kernel_standard_error"))


def _nan(document: dict[str, Any], name: str) -> dict[str, float]:
    return {name: math.nan if document[name] is None else document[name]}


def _ablation(document: dict[str, Any]) -> Ablation:
    bpd = tuple(tuple(tuple(repeat) for repeat in size) for size in document["bpd"])
    return Ablation(**document | {"sizes": tuple(document["sizes"]), "budgets": tuple(document["budgets"]), "bpd": bpd})


def _text(document: Mapping[str, Any]) -> str:
    """JSON with a line per entry, so that files are small and diffs are readable."""

    def lines(value: Any) -> str:
        if not isinstance(value, list) or not value or not isinstance(value[0], dict):
            return json.dumps(value, allow_nan=False, ensure_ascii=False)
        return "[\n  " + ",\n  ".join(map(lines, value)) + "\n ]"

    return "{\n" + ",\n".join(f" {json.dumps(key)}: {lines(value)}" for key, value in document.items()) + "\n}\n"
