"""Progress: what was written is read back or named as lost, whatever happens to the folder meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from dpstride.runs import progress as module
from dpstride.runs.identity import OtherWorkError
from dpstride.runs.lock import BusyError, ProgressError
from dpstride.runs.progress import Progress
from dpstride.runs.storage import read_arrays, write_arrays

IDENTITY = {"seed": 0, "model": {"name": "net", "clip": [-1.0, 1.0]}}
PIECES = {f"t {t}": {"a": np.arange(3.0) + t, "b": np.array([[t]], dtype=np.int32)} for t in range(6)}


def assert_same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for key, arrays in expected.items():
        assert found[key].keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(found[key][name], array, strict=True)


def write_pieces(folder: Path, pieces_per_shard: int = 2) -> list[Path]:
    """The six pieces in shards of their own; the shards."""
    with Progress(folder, IDENTITY) as progress:
        for number, (key, arrays) in enumerate(PIECES.items(), start=1):
            progress.write(key, arrays)
            if number % pieces_per_shard == 0:
                progress.flush()
    return sorted(folder.glob("*.safetensors"))


def read_pieces(folder: Path) -> dict[str, Any]:
    with Progress(folder, IDENTITY) as progress:
        return dict(progress.read())


# --- pieces -----------------------------------------------------------------------------------------------------------


def test_pieces_come_back_in_order(tmp_path: Path) -> None:
    shards = write_pieces(tmp_path / "p")
    assert [path.name for path in shards] == ["00000001.safetensors", "00000002.safetensors", "00000003.safetensors"]
    assert_same(read_pieces(tmp_path / "p"), PIECES)
    with Progress(tmp_path / "p", IDENTITY) as progress:
        assert [key for key, _ in progress.read()] == list(PIECES)
        progress.write("more", {"a": np.zeros(1)})
    assert_same(read_pieces(tmp_path / "p"), PIECES | {"more": {"a": np.zeros(1)}})
    with Progress(tmp_path / "p", IDENTITY) as progress:
        progress.remove()
    assert list(tmp_path.iterdir()) == []


def test_writes_are_spaced_in_time_and_bounded_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def shards() -> int:
        return len(list((tmp_path / "p").glob("*.safetensors")))

    monkeypatch.setattr(module, "SECONDS", 1e9)
    monkeypatch.setattr(module, "BYTES", 100_000)
    with Progress(tmp_path / "p", IDENTITY) as progress:
        for t in range(10):
            progress.write(str(t), {"a": np.zeros(10)})
        assert shards() == 0
        progress.write("large", {"a": np.zeros(module.BYTES // 8)})
        assert shards() == 1
        monkeypatch.setattr(module, "SECONDS", 0.0)
        for t in range(10, 13):
            progress.write(str(t), {"a": np.zeros(10)})
        assert shards() == 4


@pytest.mark.parametrize("error", [ValueError("bad"), KeyboardInterrupt(), SystemExit(3)])
def test_what_is_pending_is_written_whatever_ends_the_work(error: BaseException, tmp_path: Path) -> None:
    def work() -> None:
        with Progress(tmp_path / "p", IDENTITY) as progress:
            progress.write("t 0", PIECES["t 0"])
            raise error

    with pytest.raises(type(error)):
        work()
    assert_same(read_pieces(tmp_path / "p"), {"t 0": PIECES["t 0"]})


def test_a_folder_with_nothing_in_it_goes_and_other_files_stay(tmp_path: Path) -> None:
    with Progress(tmp_path / "new" / "p", IDENTITY):
        assert (tmp_path / "new" / "p").is_dir()
    assert not (tmp_path / "new" / "p").exists()
    (tmp_path / "q").mkdir()
    save_file({"x": np.zeros(2)}, tmp_path / "q" / "mine.safetensors")
    (tmp_path / "q" / ".dpstride-77-0.tmp").write_bytes(b"half a shard of a killed run")
    with Progress(tmp_path / "q", IDENTITY) as progress:
        assert list(progress.read()) == []
        progress.remove()
    assert [path.name for path in (tmp_path / "q").iterdir() if path.name != "lock"] == ["mine.safetensors"]


# --- damage -----------------------------------------------------------------------------------------------------------


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-3] ^= 4
    path.write_bytes(bytes(content))


def replace(path: Path) -> None:
    save_file({"0/a": np.zeros(3)}, path)


def rewritten(**header: str | None) -> Any:
    """Damage that has a right checksum: other words in the header, or none (None)."""

    def damage(path: Path) -> None:
        arrays, found = read_arrays(path)
        found.pop("sha256")
        write_arrays(path, arrays, {name: text for name, text in (found | header).items() if text is not None})

    return damage


REWRITTEN = [
    rewritten(identity=None), rewritten(identity="{"), rewritten(identity="[]"), rewritten(identity="[" * 100_000),
    rewritten(keys=None), rewritten(keys="5"), rewritten(keys="[5]"), rewritten(format="other"),
]  # fmt: skip


@pytest.mark.parametrize("damage", [truncate, empty, flip, replace, *REWRITTEN])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_damaged_shard_is_named_and_only_its_pieces_are_lost(damage: Any, which: int, tmp_path: Path) -> None:
    shards = write_pieces(tmp_path / "p")
    damage(shards[which])
    rest = {key: arrays for n, (key, arrays) in enumerate(PIECES.items()) if n // 2 != which}
    with pytest.warns(UserWarning, match=rf"p/{shards[which].name}: .*; it is removed and its contents are computed"):
        found = read_pieces(tmp_path / "p")
    assert_same(found, rest)
    assert_same(read_pieces(tmp_path / "p"), rest)  # said once: the file is gone
    with Progress(tmp_path / "p", IDENTITY) as progress:
        for key in PIECES.keys() - rest.keys():
            progress.write(key, PIECES[key])
    assert_same(read_pieces(tmp_path / "p"), PIECES)


@pytest.mark.parametrize(
    ("identity", "message"),
    [
        ({"seed": 1}, r"p holds other work: seed \(there 0, here 1\) differ\. Give another output, or remove it"),
        (
            {"model": {"name": "net", "clip": None}},
            r"other work: model\.clip \(there \[-1\.0, 1\.0\], here None\) differ",
        ),
        ({"version": "2"}, r"other work: version \(there None, here '2'\) differ"),
        # What a person has said before what follows from it, and no wall of hashes.
        (
            {"data": {"fingerprint": "ab"}, "seed": 5},
            r"work: seed \(there 0, here 5\), data\.fingerprint \(there None, here 'ab'\) differ",
        ),
        (
            {"a.fingerprint": 1, "b": 2, "c": 3, "d": 4, "e": 5, "seed": 6},
            r"work: seed .*, b .*, c .*, d \(there None, here 4\) and 2 more differ",
        ),
    ],
)
def test_other_work_is_refused_and_kept(identity: dict[str, Any], message: str, tmp_path: Path) -> None:
    write_pieces(tmp_path / "p")
    with pytest.raises(OtherWorkError, match=message):
        Progress(tmp_path / "p", IDENTITY | identity)
    assert_same(read_pieces(tmp_path / "p"), PIECES)


def test_an_identity_is_compared_as_it_is_stored(tmp_path: Path) -> None:
    with Progress(tmp_path / "p", {"clip": (-1, 1)}) as progress:
        progress.write("a", {"a": np.zeros(1)})
    with Progress(tmp_path / "p", {"clip": (-1, 1)}) as progress:
        assert len(list(progress.read())) == 1


# --- the lock ---------------------------------------------------------------------------------------------------------

HOLD = """
    import sys, time
    from dpstride.runs.progress import Progress
    progress = Progress(sys.argv[1], {})
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_told_who_has_the_folder_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOLD), str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        with pytest.raises(
            BusyError,
            match=rf"\(process {process.pid} on {socket.gethostname()} since 20.* UTC\)\. Wait for it, stop it",
        ):
            Progress(folder, {})
        process.send_signal(signal.SIGKILL)
        process.wait()
        Progress(folder, {}).close()
    assert not folder.exists()


def test_two_runs_in_one_process_are_two_runs(tmp_path: Path) -> None:
    with Progress(tmp_path / "p", IDENTITY), pytest.raises(BusyError, match=f"process {os.getpid()}"):
        Progress(tmp_path / "p", IDENTITY)
    Progress(tmp_path / "p", IDENTITY).close()


def test_a_lock_on_a_removed_folder_is_not_taken_for_the_lock(tmp_path: Path) -> None:
    first = Progress(tmp_path / "p", IDENTITY)
    shutil.rmtree(tmp_path / "p")
    second = Progress(tmp_path / "p", IDENTITY)  # another folder of that name
    with pytest.raises(BusyError, match="another run is working on this output"):
        Progress(tmp_path / "p", IDENTITY)
    first.close()
    second.close()


# --- a full disk, a read-only folder, a folder that goes ---------------------------------------------------------------


def test_a_folder_removed_under_way_is_said_and_not_made_again(tmp_path: Path) -> None:
    with Progress(tmp_path / "p", IDENTITY) as progress:
        progress.write("t 0", PIECES["t 0"])
        shutil.rmtree(tmp_path / "p")
        with pytest.raises(
            ProgressError, match=r"p: finished work could not be written \(the folder was removed while"
        ):
            progress.flush()
        progress.remove()
    assert not (tmp_path / "p").exists()


def test_a_file_where_the_folder_should_be_is_said(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("mine")
    with pytest.raises(ProgressError, match=r"p: cannot be written \(File exists\)"):
        Progress(tmp_path / "p", IDENTITY)
    with pytest.raises(ProgressError, match=r"p: cannot be written"):
        Progress("/proc/dpstride/p", IDENTITY)


def test_an_error_that_ends_the_work_is_not_hidden_by_a_second_one(tmp_path: Path) -> None:
    def work() -> None:
        with Progress(tmp_path / "p", IDENTITY) as progress:
            progress.write("t 0", PIECES["t 0"])
            shutil.rmtree(tmp_path / "p")
            raise ZeroDivisionError

    with (
        pytest.warns(UserWarning, match="the folder was removed while the work went on"),
        pytest.raises(ZeroDivisionError),
    ):
        work()


FILL = """
    import sys, numpy as np
    from dpstride.runs.lock import ProgressError
    from dpstride.runs.progress import Progress
    folder, identity = sys.argv[1], {"seed": 0}
    written = 0
    try:
        with Progress(folder, identity) as progress:
            for t in range(1000):
                progress.write(str(t), {"a": np.full(5000, float(t))})
                progress.flush()
                written += 1
    except ProgressError as error:
        print(error)
    with Progress(folder, identity) as progress:
        pieces = dict(progress.read())
    assert 5 < written < 1000 and list(pieces) == [str(t) for t in range(written)]
    assert all((arrays["a"] == float(key)).all() for key, arrays in pieces.items())
"""


def in_own_mounts(folder: Path, commands: str, script: str) -> str:
    """Run a script in a mount namespace of its own, where ``commands`` may mount on ``folder``."""
    folder.mkdir()
    shell = f'{commands} && exec "$0" -W error -c "$1" "$2"'
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", shell]
    if shutil.which("unshare") is None or subprocess.run([*words[:4], "true"], capture_output=True).returncode:
        pytest.skip("mounting needs user namespaces")
    done = subprocess.run(
        [*words, sys.executable, textwrap.dedent(script), str(folder)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_full_disk_keeps_every_piece_that_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    said = in_own_mounts(folder, f"mount -t tmpfs -o size=1m tmpfs {folder}", FILL.replace("argv[1]", "argv[1] + '/p'"))
    assert "finished work could not be written (No space left on device). What was written before is kept" in said


def test_a_limit_of_file_size_keeps_every_piece_that_was_written(tmp_path: Path) -> None:
    """The same without mounts: one shard is larger than a file may be."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (50000, 50000))"
    script = limit + textwrap.dedent(FILL).replace("np.full(5000,", "np.full(5000 if t < 8 else 10000,")
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path / "p")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "(File too large). What was written before is kept" in done.stdout


READ_ONLY = """
    import sys
    from dpstride.runs.lock import ProgressError
    from dpstride.runs.progress import Progress
    try:
        Progress(sys.argv[1] + "/p", {})
    except ProgressError as error:
        print(error)
"""


def test_a_read_only_folder_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "disk"
    said = in_own_mounts(folder, f"mount -t tmpfs -o ro tmpfs {folder}", READ_ONLY)
    assert "p: cannot be written (Read-only file system). Give an output in a folder" in said


def test_no_file_system_without_locks_stops_the_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is none to try it on here, so the kernel's answer is played."""
    import errno
    import fcntl

    def flock(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.warns(UserWarning, match="p: this file system has no locks; start no second run there"):
        Progress(tmp_path / "p", IDENTITY).close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        monkeypatch.undo()
        Progress(tmp_path / "p", IDENTITY).close()
