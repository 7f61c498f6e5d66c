"""Progress bars of long work, in one style: shown on a terminal only, over its full width."""

from __future__ import annotations

from typing import Any


def progress_bar(total: float | None, what: str, unit: str = "it", shown: bool = True, **options: Any) -> Any:
    """Return a tqdm bar that counts ``unit`` of ``what`` up to ``total``; ``options`` are tqdm's own."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, unit=unit, disable=None if shown else True, dynamic_ncols=True, **options)
