"""Models come in and schedules go out: the only place that knows foreign conventions.

One small file per project that is connected. What comes in becomes a `LoadedModel` (a `Denoiser`, and what was read from
the model to make it); what goes out starts from a `Schedule` (`export`) or is a scheduler that diffusers can use.
diffusers itself is optional: it is imported inside functions, and `require_diffusers` says what to install.
"""
