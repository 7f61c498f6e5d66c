"""Fixtures of the tests of statistics."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from edited_models import stopped  # noqa: F401  # a fixture
