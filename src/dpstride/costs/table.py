"""Moved to `objectives.step_costs`."""

from ..objectives.step_costs import Path as Path
from ..objectives.step_costs import StepCosts as CostTable
from ..objectives.step_costs import standard_error as standard_error

__all__ = ["CostTable", "Path", "standard_error"]
