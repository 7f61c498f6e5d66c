"""Stage 3. Identities: everything that must agree for two pieces of work to be the same, as plain JSON values.

Statistics, their unfinished pieces and run.json all use this form, and `dpstride.runs.identity` compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import __version__
from ..denoiser import Denoiser
from ..runs.behaviour import Behaviour
from .artefact import Statistics
from .data import Samples


def identity_of(denoiser: Denoiser, data: Samples, seed: int, behaviour: Behaviour | None = None) -> dict[str, Any]:
    """Identity of an estimate: what must agree for two to be the same work, see `dpstride.runs.identity.check_identity`.

    ``behaviour`` is None before the network has run.
    """
    identity = _of_estimate(denoiser.describe(), denoiser.process.fingerprint, _describe(data), seed)
    return identity | ({} if behaviour is None else {"behaviour": behaviour.to_dict()})


def identity_of_statistics(statistics: Statistics) -> dict[str, Any]:
    """Identity of the work that produced these statistics, with the samples it skipped, if any."""
    fingerprint, skipped = statistics.data.get("fingerprint"), list(statistics.skipped)
    data = {
        "fingerprint": fingerprint,
        "samples": statistics.samples + len(skipped),
        "range": statistics.data_range.describe(),
    }
    return (
        _of_estimate(statistics.model, statistics.process.fingerprint, data, statistics.seed)
        | {"version": statistics.version}
        | {"behaviour": None if statistics.behaviour is None else statistics.behaviour.to_dict()}
        | ({"skipped": skipped} if skipped else {})
    )


@dataclass(frozen=True)
class Inputs:
    """Model, data and seed of a run that chooses on some data and scores on other data, described before the network runs.

    Reading every weight and sample takes a while, so it is done once, for the run and its statistics.
    """

    model: dict[str, Any]
    process: str
    data: dict[str, Any]
    heldout: dict[str, Any]
    seed: int

    @classmethod
    def of(cls, denoiser: Denoiser, choosing: Samples, scoring: Samples, seed: int) -> Inputs:
        """Describe the inputs of a run."""
        return cls(
            denoiser.describe(), denoiser.process.fingerprint, _describe(choosing), _describe(scoring), seed=seed
        )

    def run(self, verb: str, options: Mapping[str, Any], objective: str) -> dict[str, Any]:
        """Identity of a run: everything its results depend on, but no file names, machines or batch sizes."""
        model = {name: value for name, value in self.model.items() if name != "name"}
        return {
            "verb": verb,
            "objective": objective,
            "model": model | {"process": self.process},
            "data": self.data,
            "heldout": self.heldout,
            "seed": self.seed,
            "options": dict(options),
            "version": __version__,
        }

    @property
    def estimate(self) -> dict[str, Any]:
        """Identity of the statistics that choose the path."""
        return _of_estimate(self.model, self.process, self.data, self.seed)

    @property
    def heldout_estimate(self) -> dict[str, Any]:
        """Identity of the statistics that score it, whose noise has the next seed."""
        return _of_estimate(self.model, self.process, self.heldout, self.seed + 1)


def _of_estimate(model: dict[str, Any], process: str, data: dict[str, Any], seed: int) -> dict[str, Any]:
    return {
        "process": process,
        "model": model,
        "data": {"fingerprint": data["fingerprint"], "samples": data["samples"]},
        "data_range": data["range"],
        "seed": seed,
        "version": __version__,
    }


def _describe(samples: Samples) -> dict[str, Any]:
    return {"fingerprint": samples.fingerprint, "samples": len(samples), "range": samples.data_range.describe()}
