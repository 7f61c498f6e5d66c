"""Progress bars of long work, all of one kind: shown on a terminal only, and as wide as it is."""

from __future__ import annotations

from typing import Any


def progress_bar(total: float | None, what: str, unit: str = "it", shown: bool = True, **options: Any) -> Any:
    """A bar of tqdm that counts ``unit`` of ``what`` up to ``total``; ``options`` are tqdm's own."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, unit=unit, disable=None if shown else True, dynamic_ncols=True, **options)
