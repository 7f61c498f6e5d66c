"""The evaluations that a sampler takes along a path: users ask for numbers of evaluations, paths have numbers of steps.

An evaluation is one call of the model for one sample. A guided model passes its network twice in each. Requested budgets
count evaluations, guided or not; spent evaluations count passes (`Denoiser.passes`).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..runs.numbers import whole_number


@dataclass(frozen=True)
class Passes:
    """Network evaluations per sample in every step of a path, and in its last step if that differs.

    Attributes:
        step: evaluations in every step.
        last: evaluations in the last step; ``step`` when None.
    """

    step: int = 1
    last: int | None = None

    def __post_init__(self) -> None:
        for count in (self.step, 1 if self.last is None else self.last):
            whole_number(count, "passes must be a whole number of network evaluations in every step")

    @property
    def saved(self) -> int:
        """Evaluations by which the last step is cheaper."""
        return 0 if self.last is None else self.step - self.last

    @property
    def words(self) -> str:
        """Description of the evaluations of K steps; empty if they are K."""
        if self.step == 1 and not self.saved:
            return ""
        return f"K steps take {self.step}K{f' − {self.saved}' if self.saved else ''} evaluations"

    def along(self, steps: int) -> int:
        """Evaluations per sample along a path of ``steps`` steps."""
        return self.step * steps - self.saved

    def steps(self, evaluations: int) -> int:
        """The most steps that ``evaluations`` per sample allow."""
        return (evaluations + self.saved) // self.step
