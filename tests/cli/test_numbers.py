"""Numbers of options are finite."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from dpstride.cli import cli


@pytest.mark.parametrize(
    "words",
    [
        ["find", "fashion-simple", "fashion-test", "-o", "out", "--tolerance"],
        ["estimate", "fashion-simple", "fashion-test", "-o", "s.safetensors", "--tolerance"],
        ["sample", "fashion-simple", "schedules.json", "-o", "s.png", "--seconds"],
        ["tune", "fashion-simple", "fashion-test", "-o", "out", "--seconds"],
        ["tune", "fashion-simple", "fashion-test", "-o", "out", "--within"],
        ["study", "fashion-simple", "fashion-test", "-o", "out", "--sampler", "ddim", "--eta"],
    ],
)
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_numbers_are_finite(words: list[str], number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "schedules.json").write_text("{}")
    result = CliRunner().invoke(cli, [*words, number])
    assert result.exit_code == 2
    assert "is not a finite number" in result.output or "is not in the range" in result.output
    assert not (tmp_path / "out").exists()
