"""The one writer: whatever goes wrong, a file is all of the old or all of the new, and nothing else is left."""

from __future__ import annotations

import ast
import errno
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpstride
from dpstride.runs import writing
from dpstride.runs.writing import WriteError, atomic, remove_leftovers, write_bytes, write_json, write_text

pytestmark = pytest.mark.attack("writes that fail or are cut off")

PACKAGE = Path(dpstride.__file__).parent


def test_a_file_is_written_with_its_folders_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "file.json"
    assert write_json(path, {"a": 1}) == path
    assert path.read_text() == '{\n "a": 1\n}\n'
    write_text(path, "± 1\r\n")
    assert path.read_bytes() == "± 1\r\n".encode()
    assert [found.name for found in path.parent.iterdir()] == ["file.json"]


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("there", [True, False])
def test_a_failed_write_names_the_file_keeps_the_old_one_and_leaves_nothing(
    step: str, number: int, there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "comparison.json"
    if there:
        path.write_text("old")

    def fail(*arguments: Any) -> None:
        raise OSError(number, os.strerror(number))

    def write() -> None:
        with atomic(path) as file:
            file.write(b"new")
            if step == "write":
                fail()

    if step != "write":
        monkeypatch.setattr(os, step, fail)
    with pytest.raises(
        WriteError, match=rf"comparison\.json: could not be written \({os.strerror(number)}\)\."
    ) as caught:
        write()
    assert ("What was there before is kept" in str(caught.value)) == there
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [("comparison.json", "old")] * there


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no number")])
def test_what_stops_the_writer_keeps_the_old_file(error: BaseException, tmp_path: Path) -> None:
    path = write_text(tmp_path / "file", "old")

    def write() -> None:
        with atomic(path) as file:
            file.write(b"half")
            raise error

    with pytest.raises(type(error)):
        write()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"a": float("nan")})
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_in_the_way_or_a_file_for_a_folder_is_said(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(WriteError, match=r"folder: could not be written \(Is a directory\)"):
        write_text(tmp_path / "folder", "x")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(WriteError, match=r"inside: could not be written \((Not a directory|File exists)\)"):
        write_text(tmp_path / "file" / "inside", "x")
    with pytest.raises(WriteError, match=r"could not be written \(File name too long\)"):
        write_text(tmp_path / ("x" * 300), "x")
    assert (tmp_path / "file").read_text() == "mine"


def test_names_may_be_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    longest = os.pathconf(tmp_path, "PC_NAME_MAX")
    assert write_text(tmp_path / ("x" * longest), "whole").read_text() == "whole"


def test_a_link_stays_a_link_and_a_pipe_a_pipe(tmp_path: Path) -> None:
    target = write_text(tmp_path / "elsewhere" / "file", "old")
    (tmp_path / "link").symlink_to(target)
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert target.read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_bytes(tmp_path / "pipe", b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


HALF = """
    import sys, time
    from dpstride.runs.writing import atomic
    with atomic(sys.argv[1]) as file:
        file.write(b"half of the new content")
        file.flush()
        print("writing", flush=True)
        time.sleep(60)
"""


def test_leftovers_of_a_kill_go_and_what_is_being_written_stays(tmp_path: Path) -> None:
    path = write_text(tmp_path / "file", "old")
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HALF), str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        remove_leftovers(tmp_path)
        assert len(list(tmp_path.iterdir())) == 2  # somebody writes it
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert path.read_text() == "old"
    (tmp_path / ".notes.tmp").write_text("not ours")
    remove_leftovers(tmp_path)
    assert sorted(found.name for found in tmp_path.iterdir()) == [".notes.tmp", "file"]


def test_a_file_just_made_is_not_lost_to_whoever_removes_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making a file and locking it, another run may take it for a leftover."""
    hold, met = writing.hold, []

    def meet(descriptor: int, shared: bool = False) -> None:
        if not met:
            met.append(descriptor)
            remove_leftovers(tmp_path)
        hold(descriptor, shared)

    monkeypatch.setattr(writing, "hold", meet)
    write_text(tmp_path / "file", "whole")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("file", "whole")]


def test_threads_write_files_of_their_own(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: write_text(tmp_path / f"{n % 10}", str(n)), range(200)))
    assert len(list(tmp_path.iterdir())) == 10


# --- folders that others write --------------------------------------------------------------------------------------------


def fill_model(folder: Path, text: str, stop: BaseException | None = None) -> None:
    with writing.atomic_folder(folder) as whole:
        (whole / "config.json").write_text(text)
        (whole / "unet").mkdir()
        (whole / "unet" / "weights").write_text(text[:2])
        if stop is not None:
            raise stop
        (whole / "unet" / "weights").write_text(text)


def files_below(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize("stop", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_folder_is_filled_whole_or_stays_as_it_was(stop: BaseException, tmp_path: Path) -> None:
    fill_model(tmp_path / "model", "first")
    write_text(tmp_path / "model" / "mine", "stays")
    with pytest.raises((WriteError, KeyboardInterrupt)) as caught:
        fill_model(tmp_path / "model", "second", stop)
    if isinstance(stop, OSError):
        assert "model: could not be written (No space left on device)" in str(caught.value)
    assert files_below(tmp_path) == {"model/config.json": "first", "model/mine": "stays", "model/unet/weights": "first"}
    fill_model(tmp_path / "model", "second")
    assert files_below(tmp_path) == {
        "model/config.json": "second",
        "model/mine": "stays",
        "model/unet/weights": "second",
    }


def test_a_temporary_folder_of_a_kill_goes_and_one_in_use_stays(tmp_path: Path) -> None:
    left = tmp_path / ".dpstride-1-0.tmp"
    (left / "unet").mkdir(parents=True)
    (tmp_path / ".dpstride-1-1.tmp").symlink_to(tmp_path / "elsewhere")
    with writing.atomic_folder(tmp_path / "model") as whole:
        (whole / "file").write_text("whole")
        remove_leftovers(tmp_path)
        assert not left.exists()
        assert whole.exists()
    assert files_below(tmp_path) == {"model/file": "whole"}


def test_an_exported_model_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """diffusers writes in place: a full disk left the weights of the new model cut off in the place of the old."""
    from dpstride import ForwardProcess
    from dpstride.training.export import export_model
    from dpstride.training.network import build_network
    from dpstride.training.objectives import setting_of

    network, folder = build_network((1, 8, 8), False, channels=(8,), attention=()), tmp_path / "model"
    export_model(network, ForwardProcess.cosine(8), setting_of("simple"), folder, facts={})
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def full(*arguments: Any, **options: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        patch.setattr("diffusers.models.modeling_utils.safetensors.torch.save_file", full)
        with pytest.raises(WriteError, match=r"model: could not be written \(No space left on device\)"):
            export_model(network, ForwardProcess.cosine(9), setting_of("simple"), folder, facts={})
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


# --- every result by its own road --------------------------------------------------------------------------------------


def _save_samples(path: Path) -> None:
    from dpstride.report.images import save_samples

    save_samples(np.zeros((2, 1, 3, 3)), path)


def _save_figure(path: Path) -> None:
    from dpstride.report.figures import save_figure

    save_figure(path.with_suffix(""), (2.0, 2.0), lambda figure: figure.add_subplot())


@pytest.mark.parametrize(
    ("name", "save"),
    [("s.png", _save_samples), ("s.npy", _save_samples), ("s.npz", _save_samples), ("f.svg", _save_figure)],
)
def test_pictures_and_arrays_go_through_it(
    name: str, save: Callable[[Path], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    path.write_bytes(b"old")

    def full(*arguments: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WriteError, match=rf"{name}: could not be written \(No space left on device\)"):
        save(path)
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [(name, b"old")]


# --- nothing else writes -------------------------------------------------------------------------------------------------

WRITERS = {"write_text", "write_bytes", "savefig", "savez", "savez_compressed", "save_file", "tofile"}


def in_place_writes(source: str) -> Iterator[tuple[int, str]]:
    """Calls that write a file themselves, with their lines: methods of paths and libraries, and open for writing."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or (node.args and ast.unparse(node.args[0]) == "file"):  # opened elsewhere
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
        modes = [
            argument.value
            for argument in (*node.args, *(keyword.value for keyword in node.keywords))
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        if (
            (isinstance(function, ast.Attribute) and name in WRITERS)
            or (name in ("open", "fdopen") and any(set(mode) & set("wax+") and len(mode) <= 3 for mode in modes))
            or (name in ("dump", "save") and owner in ("json", "np", "numpy", "pickle"))
            or (name == "save" and owner == "torch" and "file" not in map(ast.unparse, node.args))
            or (name == "save_pretrained" and owner != "super()" and not ast.unparse(node.args[0]).startswith("whole"))
        ):
            yield node.lineno, ast.unparse(node)[:80]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_file_is_written_in_place(path: Path) -> None:
    name = str(path.relative_to(PACKAGE))
    if name == "runs/writing.py":
        return
    found = list(in_place_writes(path.read_text(encoding="utf-8")))
    assert not found, f"{name} writes a file in place: {found}. Use dpstride.runs.writing."


@pytest.mark.parametrize(
    "line",
    [
        "Path(a).write_text('x')",
        "(folder / 'b').write_bytes(b'x')",
        "open(path, 'w')",
        "path.open(mode='wb')",
        "open(path, 'a')",
        "figure.savefig(path)",
        "np.save(path, x)",
        "np.savez_compressed(path, x=x)",
        "json.dump(document, file)",
        "torch.save(state, path)",
        "pipeline.save_pretrained(folder)",
    ],
)
def test_the_search_finds_such_lines(line: str) -> None:
    assert list(in_place_writes(line))


@pytest.mark.parametrize(
    "line",
    [
        "open(path)",
        "path.open('rb')",
        "write_text(path, text)",
        "schedules.save(path)",
        "np.save(file, x)",
        "pipeline.save_pretrained(whole / 'unet')",
    ],
)
def test_the_search_lets_others_pass(line: str) -> None:
    assert not list(in_place_writes(line))
