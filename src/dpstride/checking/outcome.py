"""Stage 3. The outcome of a check: a verdict, the numbers behind it, and both in words."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Verdict = Literal["fits", "better", "untrained"]


@dataclass(frozen=True)
class Cost:
    """A description in words, and its extra cost over the declared one, bits/dim (negative: it is better)."""

    label: str
    bits_per_dim: float
    standard_error: float

    def __str__(self) -> str:
        return f"{self.label} ({self.bits_per_dim:+.3f} ± {self.standard_error:.3f})"


@dataclass(frozen=True)
class Level:
    """Error of the implied ε at grid index ``t``, declared and under the best description."""

    t: int
    declared: float
    best: float


@dataclass(frozen=True)
class Check:
    """Result of `check`; print it, or look at `verdict`."""

    verdict: Verdict
    model: str
    declared: str  # declared description in words
    changes: tuple[str, ...] = ()  # changes that give the better description, in words
    remedies: tuple[str, ...] = ()
    gain: float = 0.0  # bits/dim that the better description saves
    gain_error: float = 0.0
    level: Level | None = None  # noise level at which the two differ most
    tied: tuple[str, ...] = ()  # descriptions that cannot be distinguished from the best one
    tried: tuple[Cost, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    area: float = 0.0  # bits/dim under the error curve of the best description
    gaussian: float = 0.0  # the same for a Gaussian with the data's means and variances
    evaluations: int = 0
    draws: int = 0
    notes: tuple[str, ...] = ()
    assumed: str | None = None  # value assumed for ``predicts`` if it was left out

    @property
    def ok(self) -> bool:
        """Return whether nothing better than the declared description was found."""
        return self.verdict == "fits"

    @property
    def sentence(self) -> str:
        """The verdict in one or two sentences."""
        if self.verdict == "untrained":
            return (
                f"This network knows no more about these data than their means and variances ({self.area:.2f} against "
                f"{self.gaussian:.2f} bits/dim), however it is described: it is untrained, was trained on other data, or needs "
                f"a description that was not tried.{self._nearest}"
            )
        if self.verdict == "better":
            where = ""
            if self.level is not None:
                where = (
                    f" The error of the implied noise at t = {self.level.t} would be {self.level.best:.2g} instead of "
                    f"{self.level.declared:.2g}."
                )
            left_out = "" if self.assumed is None else f"predicts was left out, so {self.assumed!r} was assumed. "
            return (
                f"{left_out}{' and '.join(self.changes)} would explain this network better, by {self.gain:.3g} ± "
                f"{self.gain_error:.1g} bits/dim.{where}"
            )
        return f"No other description explains this network better.{self._confirmed}"

    @property
    def _nearest(self) -> str:
        """A sentence about the single change that helps most, if one brings the network up to the Gaussian's level."""
        as_good = self.area < 1.05 * self.gaussian
        if not (as_good and self.tried and self.tried[0].bits_per_dim < -3.0 * self.tried[0].standard_error):
            return ""
        return f" Of these, {self.tried[0].label} fits it best, by {-self.tried[0].bits_per_dim:.3g} bits/dim."

    @property
    def _confirmed(self) -> str:
        """A sentence about the value of ``predicts`` that was assumed, if it was."""
        if self.assumed is None:
            return ""
        tied = [label for label in self.tied if "predicts=" in label]
        verdict = f"cannot be distinguished from {tied[0]}" if tied else "is right"
        return f" predicts was left out, and {self.assumed!r}, the default, {verdict}."

    def __str__(self) -> str:
        lines = [f"{self.model}: {self.declared}", self.sentence]
        lines += [f"  remedy: {remedy}" for remedy in self.remedies]
        if self.tied:
            lines.append(f"Cannot be distinguished from {'that' if self.changes else 'it'}: {'; '.join(self.tied)}.")
        lines += list(self.notes)
        lines.append(f"{self.evaluations} network evaluations, {self.draws} samples.")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self) | {"ok": self.ok, "sentence": self.sentence}
