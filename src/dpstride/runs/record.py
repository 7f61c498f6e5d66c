"""The origin of a results folder, run.json: the command, the names of model and data as typed, and versions."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from ..options import DEFAULT_OBJECTIVE
from ..reading.documents import document_of
from ..reading.types import check_types
from .identity import run_id
from .writing import write_json

FORMAT = "dpstride-run-1"
PACKAGES = ("dpstride", "numpy", "torch", "numba", "diffusers")
SAME_DATA = "a disjoint part of the same data"
NEUTRAL = ("--overwrite",)  # left out, since they change no result and equal results should be equal files
# NAME=VALUE, by itself or after its option: -M NAME=VALUE, -MNAME=VALUE, --model-option=NAME=VALUE.
SECRET = re.compile(
    r"^((?:-\w|--[\w-]+=)?\s*\w*(?:token|secret|password|key|credential)\w*\s*=).+", re.IGNORECASE | re.DOTALL
)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages on which numbers depend."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _name_of(thing: Any) -> str:
    """Return the name of a model or of data: as typed, or for an object its name, else its class and size."""
    if isinstance(thing, (str, os.PathLike)):
        return os.fspath(thing)
    thing = getattr(thing, "denoiser", thing)
    if isinstance(name := getattr(thing, "name", None), str):
        return name
    size = f" of {len(thing):,}" if hasattr(thing, "__len__") else ""
    return f"{type(thing).__name__}{size}"


@dataclass(frozen=True)
class Run:
    """Facts about a run that its results do not contain."""

    command: str
    model: str
    data: str
    heldout: str
    versions: dict[str, str] = field(default_factory=versions)
    identity: dict[str, Any] = field(default_factory=dict)  # all that results depend on; empty in files of version 0.1

    @classmethod
    def of(
        cls,
        arguments: Sequence[str] | None,
        model: str,
        data: str,
        heldout: str | None,
        identity: Mapping[str, Any] | None = None,
    ) -> Run:
        """Record a run of the command line, without apparent secrets (``-M token=…``), since pages are shared."""
        words = [SECRET.sub(r"\1…", word) for word in arguments or () if word not in NEUTRAL]
        names = (model, data, heldout or SAME_DATA)
        return cls(shlex.join(["dpstride", *words]), *names, identity=json.loads(json.dumps(identity or {})))

    @classmethod
    def of_call(
        cls, verb: str, inputs: tuple[Any, Any, Any], options: Mapping[str, Any], identity: Mapping[str, Any]
    ) -> Run:
        """Record a call of the library on model, data and held-out data, without arguments that were left out."""
        model, data, heldout = (_name_of(each) for each in inputs)
        words = [repr(model), repr(data), *([] if inputs[2] is None else [f"heldout={heldout!r}"])]
        words += [f"{name}={value!r}" for name, value in options.items() if value is not None]
        names = (model, data, SAME_DATA if inputs[2] is None else heldout)
        return cls(f"dpstride.{verb}({', '.join(words)})", *names, identity=json.loads(json.dumps(identity)))

    @property
    def id(self) -> str | None:
        """The id that every result of the run carries."""
        return run_id(self.identity) if self.identity else None

    @property
    def verb(self) -> str:
        """The command that makes such results."""
        objective = self.identity.get("objective", DEFAULT_OBJECTIVE)
        return f"{self.identity.get('verb')}" + ("" if objective == DEFAULT_OBJECTIVE else f" --objective {objective}")

    @property
    def options(self) -> dict[str, Any]:
        """Options by which results differ."""
        return dict(self.identity.get("options", {}))

    def save(self, folder: str | Path) -> Path:
        """Write run.json into ``folder``."""
        return write_json(Path(folder) / "run.json", {"format": FORMAT, "run": self.id, **asdict(self)})

    @classmethod
    def load(cls, path: str | Path) -> Run:
        """Read what `save` wrote."""
        with document_of(path, FORMAT, "a record of a run that dpstride wrote") as document:
            named = document.pop("run", None)
            run = cls(**document)
            check_types(run)
            if named != run.id:
                raise ValueError(f"its id is {named!r:.80}, but its identity gives {run.id!r}")
        return run
