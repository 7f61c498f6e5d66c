"""Stage 5. Decoder variance g_t²: the result of merging all steps below t into one."""

from __future__ import annotations

from . import DecoderVariance

DECODER = DecoderVariance(
    value=lambda process, t, t2, fitted: float(process.g[t] ** 2),
    is_upper=lambda process, t: True,
)
