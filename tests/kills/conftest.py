"""The table of kills survived, at the end of a run in one process (`make torture`)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from harness import TALLY, table


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if TALLY:
        terminalreporter.section("kills")
        terminalreporter.write_line(table())
