"""Who made a results folder: the command, the names of model and data as they were typed, and versions; run.json."""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from ..reading.documents import read_json_object
from ..reading.limits import UnreadableFileError
from ..reading.types import check_types
from .identity import run_id
from .writing import write_json

FORMAT = "dpstride-run-1"
PACKAGES = ("dpstride", "numpy", "torch", "numba", "diffusers")
NEUTRAL = ("--overwrite",)  # words that change no result, so that the same results are the same files
SECRET = re.compile(r"^(\w*(?:token|secret|password|key)\w*=).+", re.IGNORECASE)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages on which numbers depend."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@dataclass(frozen=True)
class Run:
    """Facts that a results folder cannot state by itself."""

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
        """A run of the command line; what looks like a secret (``-M token=…``) is not kept, for pages are shared."""
        words = [SECRET.sub(r"\1…", word) for word in arguments or () if word not in NEUTRAL]
        names = (model, data, heldout or "a disjoint part of the same data")
        return cls(shlex.join(["dpstride", *words]), *names, identity=json.loads(json.dumps(identity or {})))

    @property
    def id(self) -> str | None:
        """The name that every result of the run carries."""
        return run_id(self.identity) if self.identity else None

    @property
    def verb(self) -> str:
        """The command that makes such results."""
        objective = self.identity.get("objective", "elbo")
        return f"{self.identity.get('verb')}" + ("" if objective == "elbo" else f" --objective {objective}")

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
        document = read_json_object(path)
        try:
            if (found := document.pop("format", None)) != FORMAT:
                raise ValueError(f"format {found!r:.80} is not {FORMAT!r}")
            named = document.pop("run", None)
            run = cls(**document)
            check_types(run)
            if named != run.id:
                raise ValueError(f"it is called {named!r:.80}, and is {run.id!r}")
        except (ValueError, TypeError) as error:
            raise UnreadableFileError(f"{path}: not a record of a run that dpstride wrote ({error!s:.300}).") from error
        return run
