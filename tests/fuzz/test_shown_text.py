"""What the command line says of hostile files: shown on one line, with a code, and never obeyed by a terminal."""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import dpstride
from dpstride.cli import main
from dpstride.reading.limits import UnreadableFileError

pytestmark = pytest.mark.attack("text that forges or hides output")

ESCAPE = "\x1b]0;owned\x07\x1b[2J\u202e"
FORGED = "Written: everything, and it is fine"
BROKEN = f"a\n{FORGED}\nNote: {FORGED}"  # a name with line breaks
MODEL = """
import dpstride
def denoiser():
    return dpstride.Denoiser(lambda x, time: 0.1 * x, dpstride.ForwardProcess.linear(6), shape=(1, 2, 2), name={name!r})
def failing():
    raise RuntimeError("first line\\n" + {forged!r})
"""


def say(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    printed = capsys.readouterr()
    assert isinstance(stop.value.code, int)
    assert "Traceback" not in printed.err
    return stop.value.code, printed.out + printed.err


def test_a_hostile_name_reaches_the_terminal_as_escapes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    denoiser = dpstride.Denoiser(lambda x, time: 0.1 * x, dpstride.ForwardProcess.linear(6), name=ESCAPE)
    images = torch.randint(0, 256, (4, 1, 2, 2), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    schedules = dpstride.optimise(denoiser, images, progress=False)
    schedules.save(tmp_path / "schedules.json")
    document = json.loads((tmp_path / "schedules.json").read_text())
    hostile = tmp_path / f"{ESCAPE}.json"
    hostile.write_text(json.dumps({**document, "format": ESCAPE}))
    for words in (
        ("export", hostile, "--to", "csv", "--budget", 2),
        ("evaluate", hostile, "--statistics", hostile),
        ("solve", hostile, "-o", "out.json"),
        ("estimate", f"{ESCAPE}:x", "data.npy", "-o", "out"),
        ("estimate", hostile, "data.npy", "-o", "out"),
    ):
        code, printed = say(capsys, *words)
        assert code == 2, words
        assert all(line.isprintable() for line in printed.split("\n")), words
        assert r"\x1b" in printed


def test_schedules_without_their_origin_are_refused_not_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dpstride.even_stride(dpstride.ForwardProcess.linear(6), 2).save(tmp_path / "by_hand.json")
    code, printed = say(capsys, "evaluate", tmp_path / "by_hand.json", "--statistics", tmp_path / "by_hand.json")
    assert code == 2
    assert "These schedules do not record their variance" in printed


def never_forged(printed: str) -> None:
    lines = [line for line in printed.split("\n") if line.startswith((FORGED, f"Note: {FORGED}", f"Error: {FORGED}"))]
    assert not lines, printed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "shown_model.py").write_text(MODEL.format(name=BROKEN, forged=FORGED))
    np.save(tmp_path / f"{BROKEN}.npy", np.random.default_rng(0).integers(0, 256, (8, 1, 2, 2), dtype=np.uint8))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "shown_model", raising=False)
    return tmp_path


def test_names_with_line_breaks_begin_no_line_of_what_every_verb_prints(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = f"{BROKEN}.npy", f"out {BROKEN}"
    work = ("--samples", 3, "--heldout-samples", 3)
    for words in (
        ("find", "shown_model:denoiser", data, "-o", out, *work),
        ("find", "shown_model:denoiser", data, "--heldout", data, "-o", f"{out} 2", *work, "--every-step"),
        ("estimate", "shown_model:denoiser", data, "-o", f"{BROKEN}.safetensors", "--samples", 3),
        ("estimate", "shown_model:denoiser", data, "-o", f"{BROKEN} 2.safetensors", "--samples", 3, "--adaptive"),
        ("solve", f"{BROKEN}.safetensors", "-o", f"{BROKEN}.json"),
        ("evaluate", f"{BROKEN}.json", "--statistics", f"{out}/heldout.safetensors"),
        ("sample", "shown_model:denoiser", f"{BROKEN}.json", "-k", 3, "-n", 2, "-o", f"{BROKEN}.png"),
        ("report", out),
    ):
        code, printed = say(capsys, *words)
        assert code == 0, printed
        never_forged(printed)
        assert r"a\nWritten" in printed or words[0] == "evaluate", words


def test_names_with_line_breaks_begin_no_line_of_an_error(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = folder / "images"
    (images / "x").mkdir(parents=True)
    (images / "x" / f"{BROKEN}.png").write_bytes(b"no image")
    (folder / f"{BROKEN}.json").write_text("{")
    (folder / f"{BROKEN}.bin").write_bytes(b"cut")
    for words in (
        ("find", "shown_model:denoiser", images, "-o", "out"),
        ("find", "shown_model:denoiser", f"{BROKEN}.bin", "-o", "out"),
        ("find", "shown_model:denoiser", f"{BROKEN}.missing", "-o", "out"),
        ("find", f"{BROKEN}:denoiser", "data.npy", "-o", "out"),
        ("find", "shown_model:denoiser", f"{BROKEN}.npy", "-o", f"{BROKEN}.npy"),
        ("solve", f"{BROKEN}.json", "-o", "out.json"),
        ("solve", f"{BROKEN}.missing", "-o", "out.json"),
        ("sample", "shown_model:denoiser", f"{BROKEN}.json", "-k", 3, "-o", f"{BROKEN}.jpg"),
        ("report", f"{BROKEN}"),
        ("estimate", "shown_model:failing", f"{BROKEN}.npy", "-o", "out.safetensors"),
    ):
        code, printed = say(capsys, *words)
        assert code in (1, 2), printed
        never_forged(printed)


def test_an_error_about_a_file_is_one_line_in_python_too(folder: Path) -> None:
    (folder / f"{BROKEN}.npz").write_bytes(b"cut")
    with pytest.raises(UnreadableFileError, match=r"a\\nWritten: .*not a whole zip archive") as refusal:
        dpstride.read_data(folder / f"{BROKEN}.npz")
    assert "\n" not in str(refusal.value)


def test_a_warning_about_a_file_is_shown_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        say(capsys, "models")  # a verb puts its own way to warn in place
        warnings.warn(f"{BROKEN}\x1b[2J: damaged", stacklevel=1)
    printed = capsys.readouterr().err
    assert printed == f"Warning: {BROKEN!s}\x1b[2J: damaged\n".replace(BROKEN, BROKEN.replace("\n", "\\n")).replace(
        "\x1b", "\\x1b"
    )


@pytest.mark.parametrize("verb", ["find", "estimate", "solve", "sample", "study", "demo", "train", "export"])
def test_an_output_with_a_name_too_long_is_refused_before_the_work(
    folder: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    (folder / "there.json").write_text("{}")
    words = {
        "find": ("shown_model:failing", "data.npy"),
        "estimate": ("shown_model:failing", "data.npy"),
        "solve": ("there.json",),
        "sample": ("shown_model:failing", "there.json", "-k", 3),
        "study": ("shown_model:failing", "data.npy"),
        "demo": (),
        "train": ("simple",),
        "export": ("there.json", "--to", "csv", "--budget", 2),
    }[verb]
    for name in ("x" * 300, "ü" * 120, f"{'y' * 300}/x", "/".join(["z" * 200] * 30)):
        code, printed = say(capsys, verb, *words, "-o", name)
        assert code == 2
        assert "is a name of" in printed
        assert "Give a shorter one" in printed
    before = sorted(path.name for path in folder.iterdir())
    assert not [name for name in before if name.startswith(("x", "ü", "y", "z"))]


def test_an_output_of_the_longest_name_allowed_is_written(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    longest = os.pathconf(folder, "PC_NAME_MAX") - 40
    statistics = "s" * (longest - 12) + ".safetensors"
    code, printed = say(
        capsys, "estimate", "shown_model:denoiser", f"{BROKEN}.npy", "-o", statistics, "--samples", 3, "--adaptive"
    )
    assert code == 0, printed
    code, printed = say(capsys, "solve", statistics, "-o", "j" * (longest - 5) + ".json")
    assert code == 0, printed
    for name in ("p" * (longest - 4) + ".png", "n" * (longest - 4) + ".npy"):
        words = ("sample", "shown_model:denoiser", "j" * (longest - 5) + ".json", "-k", 3, "-n", 2, "-o", name)
        code, printed = say(capsys, *words)
        assert code == 0, printed
    work = ("--samples", 3, "--heldout-samples", 3)
    code, printed = say(capsys, "find", "shown_model:denoiser", f"{BROKEN}.npy", "-o", "f" * longest, *work)
    assert code == 0, printed


def test_names_too_long_for_the_file_system_are_no_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="is neither a file nor a folder"):
        dpstride.read_data("x" * 300)
    code, printed = say(capsys, "find", "shown_model:denoiser", "x" * 300, "-o", "out")
    assert code == 2
    assert "is neither a file nor a folder" in printed


def test_invisible_characters_reach_the_page_as_escapes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hidden = "\u3164\u034f\ufe0f\u2800\u115f\U000e0041\u202e"
    source = (folder / "shown_model.py").read_text()
    (folder / "hidden_model.py").write_text(source.replace(repr(BROKEN), ascii(f"a{hidden}b")))
    data = f"data{hidden}.npy"
    (folder / f"{BROKEN}.npy").rename(folder / data)
    words = ("find", "hidden_model:denoiser", data, "-o", "out", "--samples", 3, "--heldout-samples", 3)
    code, printed = say(capsys, *words)
    assert code == 0, printed
    page = (folder / "out" / "report.html").read_text(encoding="utf-8")
    for character in hidden:
        assert character not in page
        assert character not in printed
        assert character.encode("unicode_escape").decode() in printed
    document = json.loads(re.split(r"<script[^>]*application/json[^>]*>", page)[1].split("</script>")[0])
    assert r"a\u3164\u034f\ufe0f\u2800\u115f\U000e0041\u202eb" in document["title"]
    assert not set(hidden) & set(json.dumps(document, ensure_ascii=False))
