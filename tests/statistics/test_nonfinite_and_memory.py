"""Networks that give NaN or infinity, and batches that do not fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stopped_work import BATCH, PowerCutError, go_on, network_of, worked_at
from torch import Tensor

from dpstride import Denoiser, NonFiniteError, Statistics, estimate
from dpstride.runs import progress
from dpstride.runs.identity import OtherWorkError
from dpstride.runs.progress import Progress
from dpstride.statistics import units
from dpstride.statistics.probes import PASSES
from small_network import IMAGES, PROCESS, Net, assert_identical, denoiser_of, run


@pytest.fixture(autouse=True)
def in_twos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of probes and spot checks have two samples at most, so that a test can tell the work by its size."""
    monkeypatch.setattr("dpstride.statistics.probes.LARGE", 2)
    monkeypatch.setattr("dpstride.statistics.spots.SPOTS", 2)


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
    with pytest.warns(UserWarning, match=r"Out of memory with \d+ samples in a batch; continuing with \d+\.") as warned:
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

    with pytest.warns(UserWarning, match="Out of memory with 55 samples in a batch; continuing with 28"):
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
    assert (
        "2 of 12 samples were left out, for which the network returned NaN or infinity: 3, 7."
        in capsys.readouterr().err
    )
    assert Statistics.load("s.safetensors").samples == 10
    study = ["study", "bright_is_bad:model", "data.npy", "--heldout", "data.npy", "-o", "study", "-k", "2", "--json"]
    study += ["--choosing-samples", "12", "--heldout-samples", "12", "--samples", "4", "--features", "none"]
    assert _run(study) == 1
    assert "at grid step t = 1" in capsys.readouterr().err
    assert _run([*study, "--skip-nonfinite"]) == 0
    notes = [note for note in json.loads(capsys.readouterr().out)["notes"] if "left out" in note]
    assert len(notes) == 2
    assert all(note.startswith("2 of 12 samples were left out") for note in notes)
