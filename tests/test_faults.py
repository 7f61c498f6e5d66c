"""What stops or disturbs estimation: nothing finished is lost, nothing else is believed, and the result is the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpstride import Denoiser, ForwardProcess, NonFiniteError, Statistics, StatisticsFileError, estimate
from dpstride.runs import progress
from dpstride.runs.identity import OtherWorkError
from dpstride.runs.lock import BusyError, ProgressError
from dpstride.runs.progress import Progress
from dpstride.statistics import units
from dpstride.statistics.probes import EVALUATIONS, LARGE, PASSES
from dpstride.statistics.spots import OF_UNIT
from small_network import IMAGES, KINDS, PROCESS, Net, assert_identical, denoiser_of, run

# Ten samples a batch: units of 4 t, so that [1 … 4], [5 … 8] and [9] are done one after the other.
BATCH = 10


class PowerCutError(Exception):
    pass


def network_of(denoiser: Denoiser) -> Net:
    assert isinstance(denoiser.network, Net)
    return denoiser.network


@pytest.fixture(autouse=True)
def in_twos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of probes and spot checks have two samples at most, so that a test can tell the work by its size."""
    monkeypatch.setattr("dpstride.statistics.probes.LARGE", 2)
    monkeypatch.setattr("dpstride.statistics.estimate.SPOTS", 2)


def stop_at(denoiser: Denoiser, t: int, error: BaseException) -> None:
    def before(steps: list[int]) -> None:
        if t in steps and len(steps) > 2:  # not at the probes
            raise error

    network_of(denoiser).before = before


def go_on(denoiser: Denoiser) -> list[list[int]]:
    """No more failures; the batches from now on."""
    network_of(denoiser).before = lambda steps: None
    network_of(denoiser).calls = []
    return network_of(denoiser).calls


def worked_at(calls: list[list[int]]) -> list[int]:
    return sorted({t for call in calls for t in call if len(call) > 2})


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
    with pytest.warns(UserWarning, match=r"00000001\.safetensors: not a whole .* what it held is computed again"):
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
    assert network.count == 5 * 37 + probes + 2 + OF_UNIT  # spot checks of what was there, and of the first unit


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
        UserWarning, match=r"checkpoint: not a whole safetensors file .*; what it held is computed again"
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
    with pytest.raises(
        ProgressError, match=r"statistics: could not be written \(.*\)\. All that is finished is kept in"
    ):
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


# --- NaN, infinity, memory --------------------------------------------------------------------------------------------


def sick(bad: dict[int, set[int]], learned: bool = False, value: float = float("nan")) -> Denoiser:
    """A denoiser that gives ``value`` in one place for the samples ``bad[t]``, which it knows by their conditioning."""
    net = Net(learned)

    def network(x: Tensor, time: Tensor, number: Tensor) -> Tensor:
        out = net(x, time)
        for place, (t, sample) in enumerate(zip((time + 1).tolist(), number.tolist(), strict=True)):
            if sample in bad.get(t, ()):
                out[place, 0, 0] = value
        return out

    return Denoiser(network, PROCESS, predicts="x0", clip=None, variance="learned_range" if learned else "posterior")


NUMBERED = (IMAGES, {"number": torch.arange(37)})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_names_step_sample_and_batch_and_keeps_finished_units(value: float, tmp_path: Path) -> None:
    # Unit [5 … 8] is 148 samples in 15 batches of 9 or 10: t = 6, sample 20 is number 57, in the batch from 49 to 58.
    denoiser = sick({6: {20}, 7: {3}}, value=value)
    message = (
        r"NaN or infinity for sample 20 at grid step t = 6, in a batch of \d+ \(samples 1\d to 2\d, t = 6 to 6\)\. "
        r"Check .* leave such samples out with skip_nonfinite"
    )
    with pytest.raises(NonFiniteError, match=message):
        estimate(denoiser, NUMBERED, batch_size=BATCH, checkpoint=tmp_path / "c", progress=False)
    with Progress(tmp_path / "c.progress", kept_identity(tmp_path)) as kept:
        assert [key for key, _ in kept.read()] == ["[[1, 2, 3, 4], 0, []]"]


def kept_identity(folder: Path) -> dict[str, Any]:
    import json

    from dpstride.runs.storage import read_arrays

    header = read_arrays(next((folder / "c.progress").glob("*.safetensors")))[1]
    found: dict[str, Any] = json.loads(header["identity"])
    return found


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("size", [2048, 10])
def test_skipped_samples_leave_what_the_others_give(
    learned: bool, stored: bool, size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Samples that are bad anywhere are left out everywhere; the others keep the values and the noise that they have."""
    monkeypatch.setattr(units, "RANGE", size)
    healthy = estimate(sick({}, learned), NUMBERED, batch_size=BATCH, progress=False)
    bad = {2: {5}, 7: {5, 6, 30}}
    path = tmp_path / "c" if stored else None
    found = estimate(
        sick(bad, learned), NUMBERED, batch_size=BATCH, skip_nonfinite=True, checkpoint=path, progress=False
    )
    kept = [n for n in range(37) if n not in (5, 6, 30)]
    assert found.data["skipped"] == [5, 6, 30]
    assert (found.samples, found.data["samples"], found.skipped) == (34, 34, (5, 6, 30))
    np.testing.assert_array_equal(found.squared_error, healthy.squared_error[:, kept])
    np.testing.assert_array_equal(found.data_square, healthy.data_square[kept])
    assert found.decoder_upper is not None
    assert healthy.decoder_upper is not None
    np.testing.assert_array_equal(found.decoder_upper, healthy.decoder_upper[:, kept])
    # Blocks of 1 or 2 samples lose members, and the one of 5 and 6 goes.
    block = healthy.block_of_sample[kept]
    np.testing.assert_array_equal(np.unique(block, return_inverse=True)[1], found.block_of_sample)
    for t in range(1, 10):
        assert found.residual_bins is not None
        _, weights = found.residual_bins.row(t)
        assert weights.sum() == pytest.approx(34 * 6, rel=1e-12)
    if path is not None:
        assert_identical(Statistics.load(path), found)
        again = estimate(
            sick(bad, learned), NUMBERED, batch_size=BATCH, skip_nonfinite=True, checkpoint=path, progress=False
        )
        assert_identical(again, found)
        with pytest.raises(OtherWorkError, match=r"c holds other work: skipped \(there \[5, 6, 30\], here None\)"):
            estimate(sick(bad, learned), NUMBERED, batch_size=BATCH, checkpoint=path, progress=False)


def test_costs_of_what_is_left_are_those_of_the_data_without_the_samples() -> None:
    """The mean over the others, by plain averaging of what all have without the fault."""
    from dpstride import elbo_costs

    healthy = estimate(sick({}), NUMBERED, progress=False)
    found = estimate(sick({9: set(range(0, 37, 3))}), NUMBERED, skip_nonfinite=True, progress=False)
    kept = [n for n in range(37) if n % 3]
    M = healthy.squared_error[:, kept].mean(axis=1)
    snr = np.concatenate([[np.inf], (PROCESS.f[1:] / PROCESS.g[1:]) ** 2])
    L = elbo_costs(found).L
    for t, s in ((9, 4), (5, 1), (2, 1)):
        assert L[t, s] == pytest.approx(0.5 * (snr[s] - snr[t]) * M[t], rel=1e-10)
    assert healthy.decoder_upper is not None
    assert L[4, 0] == pytest.approx(healthy.decoder_upper[4, kept].mean(), rel=1e-9)


def test_skipping_resumes_bit_for_bit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    monkeypatch.setattr(units, "RANGE", 10)
    bad = {2: {5}, 7: {30}}
    expected = estimate(sick(bad), NUMBERED, batch_size=5, skip_nonfinite=True, progress=False)
    writes = [0]
    write = Progress.write

    def failing(self: Progress, key: str, arrays: Any) -> None:
        write(self, key, arrays)
        writes[0] += 1
        if writes[0] % 4 == 0:
            raise PowerCutError

    monkeypatch.setattr(Progress, "write", failing)
    found, cuts = None, 0
    while found is None:
        try:
            found = estimate(
                sick(bad), NUMBERED, batch_size=5, skip_nonfinite=True, checkpoint=tmp_path / "c", progress=False
            )
        except PowerCutError:
            cuts += 1
    assert cuts >= 3
    assert_identical(found, expected)


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(ValueError, match="NaN or infinity for every sample"):
        estimate(sick({3: set(range(37))}), NUMBERED, skip_nonfinite=True, progress=False)


ALLOCATORS: list[Callable[[], BaseException]] = [
    lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    lambda: RuntimeError("[enforce fail at alloc_cpu.cpp:118] . DefaultCPUAllocator: can't allocate memory: you tried"),
    lambda: MemoryError(),
]


@pytest.mark.parametrize("error", ALLOCATORS)
def test_a_batch_that_does_not_fit_is_halved_and_the_result_is_the_same(error: Callable[[], BaseException]) -> None:
    denoiser = denoiser_of(learned=True)

    def small_memory(steps: list[int]) -> None:
        if len(steps) > 20:
            raise error()

    network_of(denoiser).before = small_memory
    with pytest.warns(UserWarning, match=r"Out of memory with \d+ samples in a batch; going on with \d+\.") as warned:
        found = run(denoiser=denoiser, batch_size=64)
    sizes = [len(call) for call in network_of(denoiser).calls[PASSES:]]
    assert sizes[:2] == [55, 27]  # of up to 64 and 28
    assert max(sizes[2:]) == 14
    assert len(warned) == 2  # each said once
    expected = run(learned=True)
    np.testing.assert_array_equal(found.squared_error, expected.squared_error)
    np.testing.assert_array_equal(found.decoder_upper, expected.decoder_upper)
    assert found.fraction_bins is not None
    assert expected.fraction_bins is not None
    np.testing.assert_allclose(found.fraction_bins.moments, expected.fraction_bins.moments, rtol=1e-12, atol=1e-12)


def test_the_real_allocator_says_what_is_taken_for_no_memory() -> None:
    def greedy(x: Tensor, time: Tensor) -> Tensor:
        if len(x) > 30:
            torch.empty(len(x), 2**56, dtype=torch.uint8)
        return 0.5 * x

    with pytest.warns(UserWarning, match="Out of memory with 55 samples in a batch; going on with 28"):
        found = run(denoiser=Denoiser(greedy, PROCESS))
    np.testing.assert_allclose(
        found.squared_error, run(denoiser=Denoiser(lambda x, time: 0.5 * x, PROCESS)).squared_error
    )


def test_one_sample_that_does_not_fit_ends_the_work_and_keeps_the_rest(tmp_path: Path) -> None:
    denoiser = denoiser_of()

    def full(steps: list[int]) -> None:
        if 5 in steps:  # where no probe is
            raise MemoryError("no memory")

    network_of(denoiser).before = full
    with pytest.warns(UserWarning, match="Out of memory"), pytest.raises(MemoryError, match="no memory"):
        run(denoiser=denoiser, batch_size=BATCH, checkpoint=tmp_path / "c")
    calls = go_on(denoiser)
    assert_identical(run(denoiser=denoiser, batch_size=BATCH, checkpoint=tmp_path / "c"), run(batch_size=BATCH))
    assert worked_at(calls) == [5, 6, 7, 8, 9]


def test_other_runtime_errors_are_not_taken_for_no_memory() -> None:
    def broken(x: Tensor, time: Tensor) -> Tensor:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run(denoiser=Denoiser(broken, PROCESS))


def test_the_command_skips_and_says_so_or_stops_with_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import json

    from dpstride.cli import _run

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    Path("bright_is_bad.py").write_text(
        "import torch, dpstride\n"
        "def network(x, time):\n"
        "    bad = (x.mean((1, 2, 3)) > 0.9) & (time == 0)\n"
        "    return torch.where(bad[:, None, None, None], torch.inf, 0.5 * x)\n"
        "def model():\n"
        "    return dpstride.Denoiser(network, dpstride.ForwardProcess.linear(6), predicts='x0')\n"
    )
    images = IMAGES[:12, None].numpy().copy()
    images[[3, 7]] = 255
    np.save("data.npy", images)
    words = ["estimate", "bright_is_bad:model", "data.npy", "-o", "s.safetensors"]
    assert _run(words) == 1
    assert "NaN or infinity for sample 3 at grid step t = 1, sample 7 at grid step t = 1" in capsys.readouterr().err
    assert _run([*words, "--skip-nonfinite", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["skipped"] == [3, 7]
    assert _run([*words, "--skip-nonfinite"]) == 0
    assert "2 of 12 samples were left out, for which the network gave NaN or infinity: 3, 7." in capsys.readouterr().err
    assert Statistics.load("s.safetensors").samples == 10
    study = ["study", "bright_is_bad:model", "data.npy", "--heldout", "data.npy", "-o", "study", "-k", "2", "--json"]
    study += ["--choosing-samples", "12", "--heldout-samples", "12", "--samples", "4", "--features", "none"]
    assert _run(study) == 1
    assert "at grid step t = 1" in capsys.readouterr().err
    assert _run([*study, "--skip-nonfinite"]) == 0
    notes = [note for note in json.loads(capsys.readouterr().out)["notes"] if "left out" in note]
    assert len(notes) == 2
    assert all(note.startswith("2 of 12 samples were left out") for note in notes)
