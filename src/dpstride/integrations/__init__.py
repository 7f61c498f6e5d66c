"""Import of models and export of schedules: the only place that knows foreign conventions.

One small file per connected project. An imported model becomes a `LoadedModel` (a `Denoiser`, with notes on what was read
from the model); an export starts from a `Schedule` (`export`) or is a scheduler that diffusers can use. diffusers itself is
optional: it is imported inside functions, and `require_diffusers` says what to install.
"""
