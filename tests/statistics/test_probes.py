"""Networks that misbehave quietly: each kind is found before the work, or made harmless; honest ones of any kind pass."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from quiet_networks import COUNT, IMAGES, LABELS, PROCESS, SHAPE, TAKES, T, conditional, honest, per_sample, run
from torch import Tensor, nn

from dpstride import Denoiser, bits_per_dim, estimate_trajectory, even_stride
from dpstride.statistics.probes import AFTER, EVALUATIONS, PASSES, probe_on_noise
from dpstride.statistics.spots import OF_UNIT

pytestmark = pytest.mark.attack("networks that misbehave quietly")


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (lambda x: torch.complex(x, x), "torch.complex128"),
        (lambda x: x.to(torch.int64), "torch.int64"),
        (lambda x: x > 0, "torch.bool"),
        (lambda x: (100 * x).to(torch.uint8), "torch.uint8"),
        (lambda x: x.to_sparse(), "torch.float64 in the layout torch.sparse_coo"),
    ],
)
def test_outputs_that_are_no_real_numbers_are_refused(output: Callable[[Tensor], Tensor], found: str) -> None:
    with pytest.raises(ValueError, match=rf"must return real numbers .* but it returned {found}\. Wrap it"):
        run(lambda x, time: output(x))


def dropout(x: Tensor, time: Tensor) -> Tensor:
    return nn.functional.dropout(honest(x, time), 0.05)


def noisy(x: Tensor, time: Tensor) -> Tensor:
    return honest(x, time) + 1e-3 * torch.randn_like(x)


def hidden_module() -> Callable[[Tensor, Tensor], Tensor]:
    """A module in training mode where no search would look."""
    hidden = nn.Sequential(nn.Flatten(), nn.Linear(32, 32), nn.Dropout(0.3)).double().train()
    registry = type("Registry", (), {"find": staticmethod(lambda: hidden)})

    def network(x: Tensor, time: Tensor) -> Tensor:
        return registry.find()(x).reshape(x.shape)

    return network


@pytest.mark.parametrize("network", [dropout, noisy, hidden_module()], ids=["dropout", "noisy", "hidden module"])
def test_a_random_network_is_refused_before_the_work(network: Any) -> None:
    state = torch.get_rng_state()
    calls: list[int] = []

    def counted(x: Tensor, time: Tensor) -> Tensor:
        calls.append(len(x))
        return network(x, time)

    with pytest.raises(
        ValueError, match=r"different outputs for the same input .*draws random numbers.* Dropout .* \.eval\(\)"
    ):
        run(counted)
    assert len(calls) <= PASSES + 2
    torch.set_rng_state(state)


class Counting:
    def __init__(self, drift: float) -> None:
        self.calls, self.drift = 0, drift

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        self.calls += 1
        return honest(x, time) * (1.0 + self.drift * self.calls)


class Remembering:
    def __init__(self) -> None:
        self.last: Tensor | float = 0.0

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        out = honest(x, time) + 0.1 * self.last
        self.last = float(x.mean())
        return out


class OwnRandomness:
    def __init__(self) -> None:
        self.generator = np.random.default_rng(0)

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        return honest(x, time) + torch.from_numpy(0.1 * self.generator.standard_normal(x.shape))


@pytest.mark.parametrize("network", [Counting(1e-6), Counting(-0.1), Remembering(), OwnRandomness()])
def test_a_network_that_keeps_something_between_calls_is_refused(network: Any) -> None:
    with pytest.raises(
        ValueError, match=r"different outputs for the same input .*keeps state between calls.* order of the work"
    ):
        run(network)


class Later:
    """It is another network from some call on."""

    def __init__(self, call: int) -> None:
        self.calls, self.call = 0, call

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        self.calls += 1
        return honest(x, time) * (1.0 if self.calls < self.call else 1.1)


@pytest.mark.parametrize("call", [PASSES + 1, PASSES + 2, PASSES + OF_UNIT + 3, PASSES + OF_UNIT + 8])
def test_a_network_that_changes_while_it_works_is_refused_and_its_work_given_up(call: int, tmp_path: Path) -> None:
    """Probes and the first unit were passed before; the numbers were of two networks."""
    path = tmp_path / "statistics"
    with pytest.raises(ValueError, match=r"changed during the work|than for the sample alone"):
        run(Later(call), batch_size=4, checkpoint=path)
    if call > PASSES + 2:
        assert not list(tmp_path.iterdir())


def batch_norm() -> Callable[[Tensor, Tensor], Tensor]:
    norm = nn.BatchNorm2d(2, track_running_stats=False).double()
    return lambda x, time: norm(honest(x, time))


@pytest.mark.parametrize(
    "network",
    [
        batch_norm(),
        lambda x, time: honest(x, time) / x.std(),
        lambda x, time: honest(x, time) - 1e-3 * x.mean(0, keepdim=True),
        lambda x, time: honest(x, time) + x[:1],
        lambda x, time: honest(x, time) + 0.01 * x[-1:],
        lambda x, time: torch.softmax(honest(x, time), dim=0),
    ],
    ids=["batch norm", "std", "mean", "first", "last", "softmax"],
)
def test_a_network_that_mixes_the_samples_of_a_batch_is_refused(network: Any) -> None:
    with pytest.raises(
        ValueError, match=r"depends on the other samples in its batch .* Batch normalisation .*\.eval\(\)"
    ):
        run(network)
    run(network, batch_size=1)  # one by one it is a function


@pytest.mark.parametrize(("first", "last", "t"), [(20, T, T), (0, 2, 1), (14, 17, 16)])
def test_a_network_that_mixes_samples_at_some_times_only_is_refused(first: int, last: int, t: int) -> None:
    """A statistic over the batch may count where there is much noise, or little; a batch of several t is no test of that."""

    def network(x: Tensor, time: Tensor) -> Tensor:
        there = per_sample((time + 1 >= first) & (time + 1 <= last), x)
        return honest(x, time) + 0.1 * there * x.mean()

    with pytest.raises(ValueError, match=rf"depends on the other samples in its batch \(by .* at t = {t}\)"):
        run(network)
    run(lambda x, time: honest(x, time) if len({*time.tolist()}) == 1 else fail())


def fail() -> Tensor:
    raise RuntimeError("one time at once")


@pytest.mark.parametrize("count", [9, 13])
def test_one_time_for_a_large_batch_is_found_whichever_it_takes(count: int) -> None:
    """The probes' own batches are smaller; the first of the work's with several t shows it at one of its ends."""

    def network(x: Tensor, time: Tensor) -> Tensor:
        return honest(x, time if len(x) <= count else time[count].expand(len(x)))

    data = IMAGES.repeat(4, 1, 1, 1)[:40]
    for _ in range(4):  # places are drawn anew in every run, and these are not drawn
        with pytest.raises(ValueError, match="in a batch of up to 16 than for the sample alone"):
            run(network, data, batch_size=16)


@pytest.mark.parametrize("place", [0, -1])
def test_one_label_for_the_whole_batch_is_refused(place: int) -> None:
    with pytest.raises(ValueError, match=r"(other samples in its batch|in a batch of two) .* single label"):
        run(lambda x, time, label: conditional(x, time, label[place].expand(len(x))), (IMAGES, LABELS))


@pytest.mark.parametrize(
    "network",
    [lambda x, time: honest(x, time) * len(x), lambda x, time: honest(x, time) + per_sample(torch.arange(len(x)), x)],
    ids=["size", "position"],
)
def test_a_network_that_depends_on_the_size_of_its_batch_is_refused(network: Any) -> None:
    with pytest.raises(
        ValueError, match=r"different output in a batch of two than for the sample alone \(by .*squeeze"
    ):
        run(network)


def test_scores_trajectories_and_samples_are_probed_too() -> None:
    denoiser = Denoiser(dropout, PROCESS, predicts="x0", clip=None, shape=SHAPE)
    with pytest.raises(ValueError, match="draws random numbers"):
        bits_per_dim(denoiser, IMAGES, even_stride(PROCESS, 3))
    with pytest.raises(ValueError, match="draws random numbers"):
        estimate_trajectory(denoiser, 3, progress=False)


# --- accepted ---------------------------------------------------------------------------------------------------------


class Convolutions(nn.Module):
    """Enough layers to round as networks do; group norm, attention, a time embedding, dropout that is off."""

    def __init__(self, dtype: torch.dtype, width: int = 32) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.embed = nn.Linear(8, width)
        self.inward = nn.Conv2d(2, width, 3, padding=1)
        self.middle = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(6))
        self.norms = nn.ModuleList(nn.GroupNorm(4, width) for _ in range(6))
        self.attend = nn.MultiheadAttention(width, 4, batch_first=True)
        self.outward = nn.Conv2d(width, 2, 3, padding=1)
        self.dropout = nn.Dropout(0.5)
        self.to(dtype)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        angles = time[:, None].double() * torch.logspace(0, -3, 4, dtype=torch.float64)
        embedding = self.embed(torch.cat([angles.sin(), angles.cos()], 1).to(self.embed.weight.dtype))
        hidden = self.inward(x) + embedding[:, :, None, None].to(x.dtype)
        for convolution, norm in zip(self.middle, self.norms, strict=True):
            hidden = hidden + self.dropout(convolution(nn.functional.silu(norm(hidden))))
        rows = hidden.flatten(2).transpose(1, 2)
        hidden = hidden + self.attend(rows, rows, rows)[0].transpose(1, 2).reshape(hidden.shape)
        return self.outward(hidden)


def rounding_inside() -> Denoiser:
    inner = Convolutions(torch.bfloat16)
    return Denoiser(lambda x, time: inner(x.bfloat16(), time).to(x.dtype), PROCESS, shape=SHAPE, dtype=torch.float32)


HONEST: dict[str, Callable[[], Denoiser]] = {
    str(dtype): functools.partial(lambda dtype: Denoiser(Convolutions(dtype), PROCESS, shape=SHAPE), dtype)
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16)
} | {
    "channels last": lambda: Denoiser(
        Convolutions(torch.float32).to(memory_format=torch.channels_last),  # type: ignore[call-overload]
        PROCESS,
        shape=SHAPE,
    ),
    "autocast": lambda: Denoiser(Convolutions(torch.float32), PROCESS, shape=SHAPE).faster(autocast=torch.bfloat16),
    "compiled": lambda: Denoiser(Convolutions(torch.float32), PROCESS, shape=SHAPE).faster(compile=True),
    "16 bits inside": rounding_inside,
    "zero": lambda: Denoiser(lambda x, time: torch.zeros_like(x), PROCESS, shape=SHAPE),
    "cancelling": lambda: Denoiser(
        lambda x, time: (x + 1e3) - x - 1e3, PROCESS, shape=SHAPE, predicts="x0", dtype=torch.float32
    ),
    "not finite": lambda: Denoiser(lambda x, time: torch.full_like(x, math.nan), PROCESS, shape=SHAPE),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")  # torch.compile's own
@pytest.mark.parametrize("kind", HONEST)
def test_honest_networks_pass_take_several_times_and_are_known_again(kind: str) -> None:
    first, again = (probe_on_noise(HONEST[kind](), None, 4, 64) for _ in range(2))
    one_by_one = probe_on_noise(HONEST[kind](), None, 4, 1)
    assert first.mixes
    assert first.behaviour == again.behaviour
    assert first.behaviour.difference(one_by_one.behaviour) is None


def test_probes_are_as_many_as_is_said() -> None:
    calls: list[int] = []

    def network(x: Tensor, time: Tensor) -> Tensor:
        calls.append(len(x))
        return honest(x, time)

    run(network)
    assert sum(calls) == EVALUATIONS - 1 + OF_UNIT + T * COUNT + AFTER  # a batch of 7 instead of 8
    calls.clear()
    run(network, batch_size=1)
    assert sum(calls) == 9 + T * COUNT + AFTER


def test_two_that_do_not_fit_into_memory_are_passed_one_by_one() -> None:
    def small(x: Tensor, time: Tensor) -> Tensor:
        if len(x) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return honest(x, time)

    with pytest.warns(UserWarning, match="Out of memory"):
        found = run(small)
    np.testing.assert_allclose(found.squared_error, run(honest).squared_error, rtol=1e-12)


# --- batches above two, and outputs that are remembered ------------------------------------------------------------------


class Memory:
    """Returns again what it gave for these times and this shape, all of it or a part, ever or the last time."""

    def __init__(self, part: float, last_only: bool) -> None:
        self.part, self.last_only = part, last_only
        self.kept: dict[Any, Tensor] = {}

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        key = (tuple(time.tolist()), tuple(x.shape))
        if self.last_only and key not in self.kept:
            self.kept.clear()
        out = honest(x, time)
        return (1.0 - self.part) * out + self.part * self.kept.setdefault(key, out)


@pytest.mark.parametrize("batch_size", [1, 2, 7])
@pytest.mark.parametrize("last_only", [False, True])
def test_outputs_remembered_by_time_and_shape_are_found(last_only: bool, batch_size: int) -> None:
    with pytest.raises(
        ValueError, match=r"Right after another sample at the same t = 8, .*it caches something by time"
    ):
        run(Memory(1.0, last_only), batch_size=batch_size)


@pytest.mark.parametrize("last_only", [False, True])
def test_a_part_of_an_output_that_is_remembered_is_found(last_only: bool) -> None:
    with pytest.raises(ValueError, match=r"it caches something by time or shape|other samples in its batch"):
        run(Memory(0.01, last_only))


def above(size: int, wrong: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda x, time: honest(x, time) + (wrong(x, time) if len(x) > size else 0.0)


@pytest.mark.parametrize("size", [2, 3, 6])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, time: 1e-3 * x.mean(0, keepdim=True),
        lambda x, time: x[:1],
        lambda x, time: 0.01 * x[-1:],
        lambda x, time: 0.01 * x.std(),
    ],
    ids=["mean", "first", "last", "std"],
)
def test_a_network_that_mixes_only_larger_batches_is_refused(size: int, wrong: Any) -> None:
    with pytest.raises(
        ValueError, match=r"different output in a batch of 7 than for the sample alone \(by .*depend on the batches"
    ):
        run(above(size, wrong))
    np.testing.assert_array_equal(run(above(size, wrong), batch_size=size).squared_error[0], 0.0)


@pytest.mark.parametrize("take", TAKES)
def test_one_time_for_larger_batches_alone_gets_batches_of_one_time(take: str) -> None:
    def one(x: Tensor, time: Tensor) -> Tensor:
        return torch.sin(x + (0.05 * float(TAKES[take](time)) if len(x) > 2 else 0.05 * per_sample(time, x)))

    np.testing.assert_allclose(run(one).squared_error, run(honest).squared_error, rtol=1e-9)


@pytest.mark.parametrize("size", [8, 20, 40])
def test_a_network_that_mixes_only_the_largest_batches_is_refused_at_the_first_unit(size: int) -> None:
    network = above(size, lambda x, time: 1e-3 * x.mean(0, keepdim=True))
    with pytest.raises(
        ValueError, match=r"in a batch of up to 64 than for the sample alone, .*alone, at t = .* smaller batch size"
    ):
        run(network, batch_size=64)
    run(network, batch_size=8)
