"""What stops or disturbs estimation: nothing finished is lost, nothing else is believed, and the result is the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stopped_work import BATCH, PowerCutError, go_on, network_of, worked_at
from torch import Tensor

from dpstride import Denoiser, ForwardProcess, Statistics, StatisticsFileError, estimate
from dpstride.runs import progress
from dpstride.runs.identity import OtherWorkError
from dpstride.runs.lock import BusyError, ProgressError
from dpstride.runs.progress import Progress
from dpstride.runs.storage import read_arrays, write_arrays
from dpstride.statistics import units
from dpstride.statistics.probes import AFTER, EVALUATIONS, LARGE, PASSES
from dpstride.statistics.spots import OF_UNIT
from small_network import IMAGES, KINDS, PROCESS, assert_identical, denoiser_of, run


@pytest.fixture(autouse=True)
def in_twos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of probes and spot checks have two samples at most, so that a test can tell the work by its size."""
    monkeypatch.setattr("dpstride.statistics.probes.LARGE", 2)
    monkeypatch.setattr("dpstride.statistics.spots.SPOTS", 2)


def stop_at(denoiser: Denoiser, t: int, error: BaseException) -> None:
    def before(steps: list[int]) -> None:
        if t in steps and len(steps) > 2:  # not at the probes
            raise error

    network_of(denoiser).before = before


# --- interruption -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [PowerCutError("power"), KeyboardInterrupt(), SystemExit(3)])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_finished_units_survive_whatever_stops_the_work(
    kind: str, learned: bool, error: BaseException, tmp_path: Path
) -> None:
    expected = run(kind, learned, batch_size=BATCH)
    path, denoiser = tmp_path / "checkpoint", denoiser_of(learned)
    stop_at(denoiser, 6, error)
    with pytest.raises(type(error)):
        run(kind, denoiser=denoiser, batch_size=BATCH, checkpoint=path)
    with pytest.raises(StatisticsFileError, match=r"no such file\. Its estimate is not complete; run the same command"):
        Statistics.load(path)
    calls = go_on(denoiser)
    stop_at(denoiser, 9, error)
    with pytest.raises(type(error)):  # a second interruption, after a resumption
        run(kind, denoiser=denoiser, batch_size=BATCH, checkpoint=path)
    assert worked_at(calls) == [5, 6, 7, 8, 9]
    calls = go_on(denoiser)
    resumed = run(kind, denoiser=denoiser, batch_size=BATCH, checkpoint=path)
    assert worked_at(calls) == [9]  # only what was missing
    assert_identical(resumed, expected)
    assert_identical(Statistics.load(path), expected)
    assert [found.name for found in tmp_path.iterdir()] == ["checkpoint"]
    calls = go_on(denoiser)
    assert_identical(run(kind, denoiser=denoiser, batch_size=BATCH, checkpoint=path), expected)
    assert (len(calls), worked_at(calls)) == (PASSES + 1, [])  # a complete file needs probes and spot checks only


def test_nothing_is_written_when_nothing_was_done(tmp_path: Path) -> None:
    denoiser = denoiser_of()
    stop_at(denoiser, 1, PowerCutError())
    with pytest.raises(PowerCutError):
        run(denoiser=denoiser, checkpoint=tmp_path / "checkpoint")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("learned", [False, True])
def test_units_are_written_as_the_work_goes_on(learned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed process runs no handler: what the folder held at that moment must do."""
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    path, denoiser = tmp_path / "checkpoint", denoiser_of(learned)

    def kill(steps: list[int]) -> None:
        if 5 in steps and len(steps) > 2 and not (tmp_path / "killed.progress").exists():
            shutil.copytree(tmp_path / "checkpoint.progress", tmp_path / "killed.progress")

    network_of(denoiser).before = kill
    expected = run(denoiser=denoiser, batch_size=BATCH, checkpoint=path)
    calls = go_on(denoiser)
    resumed = run(denoiser=denoiser, batch_size=BATCH, checkpoint=tmp_path / "killed")
    assert worked_at(calls) == [5, 6, 7, 8, 9]
    assert_identical(resumed, expected)


def test_a_kill_between_the_result_and_the_end_of_its_folder_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: Progress) -> None:
        self.flush()
        raise PowerCutError

    denoiser = denoiser_of()
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "remove", killed)
        with pytest.raises(PowerCutError):
            run(denoiser=denoiser, checkpoint=tmp_path / "c")
    assert sorted(found.name for found in tmp_path.iterdir()) == ["c", "c.progress"]
    calls = go_on(denoiser)
    assert_identical(run(denoiser=denoiser, checkpoint=tmp_path / "c"), run())
    assert worked_at(calls) == []
    assert [found.name for found in tmp_path.iterdir()] == ["c"]


@pytest.mark.parametrize("key", ["x", "[[99], 0, []]", "[[3], 50, []]", "[[3], 0]", "5"])
def test_pieces_that_the_work_is_not_made_of_are_refused(key: str, tmp_path: Path) -> None:
    denoiser = denoiser_of()
    stop_at(denoiser, 9, PowerCutError())
    with pytest.raises(PowerCutError):
        run(denoiser=denoiser, batch_size=BATCH, checkpoint=tmp_path / "c")
    shard = tmp_path / "c.progress" / "00000001.safetensors"
    arrays, header = read_arrays(shard)
    header.pop("sha256")
    write_arrays(shard, arrays, header | {"keys": json.dumps([key])})
    go_on(denoiser)
    with pytest.raises(OtherWorkError, match=r"c\.progress holds pieces that do not belong to this work"):
        run(denoiser=denoiser, batch_size=BATCH, checkpoint=tmp_path / "c")


def test_a_damaged_piece_is_named_and_only_its_rows_are_computed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    expected, denoiser = run(batch_size=BATCH), denoiser_of()
    stop_at(denoiser, 9, PowerCutError())
    with pytest.raises(PowerCutError):
        run(denoiser=denoiser, batch_size=BATCH, checkpoint=tmp_path / "c")
    shard = tmp_path / "c.progress" / "00000001.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    calls = go_on(denoiser)
    with pytest.warns(UserWarning, match=r"00000001\.safetensors: not a whole .* its contents are computed again"):
        found = run(denoiser=denoiser, batch_size=BATCH, checkpoint=tmp_path / "c")
    assert worked_at(calls) == [1, 2, 3, 4, 9]
    assert_identical(found, expected)


def test_a_network_that_counts_itself_can_be_resumed(tmp_path: Path) -> None:
    """What it counts changes no output, so it is the same model."""

    class Counting:
        def __init__(self) -> None:
            self.count = 0
            self.scale = 0.5

        def __call__(self, x: Tensor, time: Tensor) -> Tensor:
            self.count += len(x)
            if stopping[0] and int(time[-1]) == 5 and len(x) > 2:
                raise PowerCutError
            return self.scale * x

    stopping = [True]
    path = tmp_path / "checkpoint"
    with pytest.raises(PowerCutError):
        estimate(Denoiser(Counting(), PROCESS), IMAGES, batch_size=BATCH, checkpoint=path, progress=False)
    stopping[0] = False
    network = Counting()
    estimate(Denoiser(network, PROCESS), IMAGES, batch_size=BATCH, checkpoint=path, progress=False)
    probes = EVALUATIONS - LARGE + 2
    assert (
        network.count == 5 * 37 + probes + 2 + OF_UNIT + AFTER
    )  # spot checks of what was there, and of the first unit


# --- other work, and other runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("different", "changes"),
    [
        (r"seed \(there 0, here 1\)", {"seed": 1}),
        (r"data\.fingerprint", {"data": IMAGES.flip(0)}),
        (r"data\.samples \(there 37, here 30\), data\.fingerprint .*", {"samples": 30}),
        ("process", {"process": ForwardProcess.cosine(9)}),
        ("process", {"process": PROCESS.subset([1, 9])}),
        (r"model\.clip \(there None, here \[-1\.0, 1\.0\]\)", {"denoiser": denoiser_of(clip=(-1, 1))}),
        (r"model\.predicts", {"denoiser": denoiser_of(predicts="eps")}),
        (r"model\.variance", {"denoiser": denoiser_of(learned=True)}),
        (r"model\.time_input", {"denoiser": denoiser_of(time_input="time")}),
    ],
)
@pytest.mark.parametrize("complete", [True, False])
def test_a_checkpoint_of_other_work_is_refused_and_kept(
    different: str, changes: dict[str, Any], complete: bool, tmp_path: Path
) -> None:
    path, denoiser = tmp_path / "checkpoint", denoiser_of()
    if complete:
        run(checkpoint=path)
    else:
        stop_at(denoiser, 9, PowerCutError())
        with pytest.raises(PowerCutError):
            run(denoiser=denoiser, batch_size=BATCH, checkpoint=path)
    before = {found: found.read_bytes() for found in tmp_path.rglob("*[0-9a-z]") if found.is_file()}
    with pytest.raises(
        OtherWorkError, match=rf"checkpoint\S* holds other work: .*{different}.* differ\. Give another out"
    ):
        run(checkpoint=path, **changes)
    assert {found: found.read_bytes() for found in tmp_path.rglob("*[0-9a-z]") if found.is_file()} == before


def test_a_checkpoint_with_other_weights_version_or_range_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, denoiser = tmp_path / "checkpoint", denoiser_of()
    run(denoiser=denoiser, checkpoint=path)
    with monkeypatch.context() as patch:
        patch.setattr("dpstride.statistics.identity.__version__", "99")
        with pytest.raises(ValueError, match=r"holds other work: version \(there '\S+', here '99'\) differ"):
            run(denoiser=denoiser, checkpoint=path)
    with torch.no_grad():
        network_of(denoiser).weight += 0.1
    with pytest.raises(ValueError, match=r"holds other work: model\.fingerprint .* differ"):
        run(denoiser=denoiser, checkpoint=path)
    with pytest.raises(ValueError, match=r"holds other work: data_range .*, data\.fingerprint .* differ"):
        estimate(denoiser_of(), IMAGES, data_range=("levels", 256, 0, 1), checkpoint=path, progress=False)


@pytest.mark.parametrize("damage", [lambda content: content[:-5], lambda content: content[:400], lambda content: b""])
def test_a_damaged_result_is_named_and_computed_again(damage: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    expected = run(checkpoint=path, samples=4)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(
        StatisticsFileError, match=r"checkpoint: not a whole safetensors file .* remove it and estimate"
    ):
        Statistics.load(path)
    with pytest.warns(
        UserWarning, match=r"checkpoint: not a whole safetensors file .*; its contents are computed again"
    ):
        assert_identical(run(checkpoint=path, samples=4), expected)
    assert_identical(Statistics.load(path), expected)


@pytest.mark.parametrize("content", [b"a text of the user's", b"\x89PNG\r\n\x1a\n" + bytes(100), bytes(1000)])
def test_a_file_of_another_kind_is_refused_and_kept(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    with pytest.raises(StatisticsFileError, match=r"checkpoint: not a whole safetensors file"):
        run(checkpoint=path, samples=4)
    assert path.read_bytes() == content


def test_a_second_run_on_the_same_output_is_told_so(tmp_path: Path) -> None:
    denoiser = denoiser_of()
    told: list[str] = []

    def second(steps: list[int]) -> None:
        if 6 in steps and len(steps) > 2 and not told:
            with pytest.raises(BusyError, match=r"c\.progress: another run is working on this output \(process \d+ on"):
                run(checkpoint=tmp_path / "c")
            told.append("told")

    network_of(denoiser).before = second
    assert_identical(run(denoiser=denoiser, checkpoint=tmp_path / "c"), run())
    assert told == ["told"]


def test_a_result_that_cannot_be_written_keeps_its_pieces(tmp_path: Path) -> None:
    (tmp_path / "c").mkdir()  # a folder where the file should go
    (tmp_path / "c" / "mine").write_text("mine")
    denoiser = denoiser_of()
    path = tmp_path / "statistics"

    def block(steps: list[int]) -> None:
        if len(steps) > 2 and not path.exists():
            shutil.copytree(tmp_path / "c", path)

    network_of(denoiser).before = block
    with pytest.raises(ProgressError, match=r"statistics: could not be written \(.*\)\. All finished work is kept in"):
        run(denoiser=denoiser, checkpoint=path)
    shutil.rmtree(path)
    calls = go_on(denoiser)
    assert_identical(run(denoiser=denoiser, checkpoint=path), run())
    assert worked_at(calls) == []


# --- some steps, then more --------------------------------------------------------------------------------------------


def rows_of(statistics: Statistics, t: int) -> dict[str, Any]:
    """Everything that statistics hold at t."""
    found: dict[str, Any] = {}
    for name in ("squared_error", "decoder_upper", "fraction_sum", "decoder_blocks", "fraction_blocks"):
        found[name] = getattr(statistics, name)[t]
    for name in ("learned_decoder", "learned_decoder_blocks"):
        found[name] = getattr(statistics, name)[t]
    for name in ("residual_bins", "fraction_bins"):
        found[f"{name} bins"], found[f"{name} weights"] = getattr(statistics, name).row(t)
    return found


def assert_rows(found: Statistics, expected: Statistics, t: int, exactly: bool = False) -> None:
    for name, value in rows_of(expected, t).items():
        rtol = 0.0 if exactly or name in ("squared_error", "decoder_upper", "fraction_sum") else 1e-11
        np.testing.assert_allclose(rows_of(found, t)[name], value, rtol=rtol, atol=rtol, err_msg=f"{name} {t}")


@pytest.mark.parametrize("how", ["memory", "complete file", "pieces"])
def test_more_steps_take_over_the_rows_of_fewer(how: str, tmp_path: Path) -> None:
    """Rows that are there stay bit for bit; others are summed in other batches than all rows at once: 1e-11."""
    full, denoiser, path = run(learned=True), denoiser_of(learned=True), tmp_path / "c"
    options: dict[str, Any] = {"denoiser": denoiser, "checkpoint": None if how == "memory" else path}
    if how == "pieces":
        stop_at(denoiser, 9, PowerCutError())
        with pytest.raises(PowerCutError):
            run(**options, batch_size=BATCH, indices=[1, 3, 4, 8, 9])  # units [1, 3, 4, 8] and [9]
        done, few = [1, 3, 4, 8], None
    else:
        few = run(**options, indices=[9, 4, 1, 4])
        done = [1, 4, 9]
        assert np.flatnonzero(few.evaluated).tolist() == done
    calls = go_on(denoiser)
    more = run(**options, indices=[1, 2, 4, 9], reuse=few if how == "memory" else None)
    expected = sorted({1, 2, 4, 9, *done})
    assert worked_at(calls) == [t for t in expected if t not in done]
    assert np.flatnonzero(more.evaluated).tolist() == expected
    for t in expected:
        assert_rows(more, full, t)
        if few is not None and t in done:
            assert_rows(more, few, t, exactly=True)
    if how != "memory":
        assert_identical(Statistics.load(path), more)
    everything = run(**options, reuse=more if how == "memory" else None)
    assert everything.evaluated[1:].all()
    for t in range(1, 10):
        assert_rows(everything, full, t)
        if t in expected:
            assert_rows(everything, more, t, exactly=True)


def test_other_work_is_not_reused() -> None:
    with pytest.raises(OtherWorkError, match=r"reuse holds other work: seed \(there 0, here 1\)"):
        run(seed=1, reuse=run())


# --- ranges of samples ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_rows_made_of_several_ranges_are_those_of_one(
    kind: str, learned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over samples are then added in another order: 1e-12, and bins to the same counts."""
    one = run(kind, learned)
    monkeypatch.setattr(units, "RANGE", 10)
    denoiser = denoiser_of(learned)
    stop_at(denoiser, 6, PowerCutError())
    with pytest.raises(PowerCutError):
        run(kind, denoiser=denoiser, batch_size=5, checkpoint=tmp_path / "c")
    go_on(denoiser)
    several = run(kind, denoiser=denoiser, batch_size=5, checkpoint=tmp_path / "c")
    assert_identical(several, run(kind, learned, batch_size=5))
    for name in ("squared_error", "decoder_upper", "decoder_blocks", "fraction_sum", "fraction_blocks"):
        if (array := getattr(one, name)) is not None:
            np.testing.assert_allclose(getattr(several, name), array, rtol=1e-12, atol=1e-12, err_msg=name)
    for name in ("learned_decoder", "learned_decoder_blocks"):
        if (array := getattr(one, name)) is not None:
            np.testing.assert_allclose(getattr(several, name), array, rtol=1e-12, err_msg=name)
    for name in ("residual_bins", "fraction_bins"):
        if (rows := getattr(one, name)) is not None:
            found = getattr(several, name)
            np.testing.assert_array_equal(found.offsets, rows.offsets)
            np.testing.assert_array_equal(found.bins, rows.bins)
            np.testing.assert_allclose(found.moments, rows.moments, rtol=1e-12, atol=1e-12)
