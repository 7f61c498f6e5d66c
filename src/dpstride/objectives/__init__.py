"""Stage 6. Objectives that paths are optimised for: one file each, which gives `StepCosts` to the solver.

denoiser, data → statistics → `elbo` costs → solution → schedules              the paper's objective, and the default
denoiser → trajectory → `trajectory` costs → solution → schedules              for deterministic samplers
statistics, trajectory → `mixed` costs → solution → schedules, or their front  for one path that serves both
statistics → `continuous` costs → solution, repeatedly → schedule              for times between those of the grid
"""
