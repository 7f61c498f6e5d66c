"""The former place of `join` (dpstride 0.1), now in `dpstride.runs.workers`."""

from __future__ import annotations

import warnings

from ..runs.workers import Workers, current, join

__all__ = ["Workers", "current", "join"]
warnings.warn("dpstride.statistics.workers is now dpstride.runs.workers.", DeprecationWarning, stacklevel=2)
