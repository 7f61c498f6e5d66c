"""Edits that spare the probes are found in rows that are taken over; what a network keeps beside its weights is not one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from edited_models import IMAGES, PROCESS, Net, T, denoiser_of, run
from torch import Tensor, nn

from dpstride import Denoiser, estimate
from dpstride.adaptive.loop import estimate_adaptively
from dpstride.runs.identity import OtherWorkError
from dpstride.statistics.spots import StoredRows
from small_network import assert_identical

pytestmark = pytest.mark.attack("edited models on resume, reuse and in workers")


# --- honest networks that must be known again ---------------------------------------------------------------------------


class Noting:
    """Keeps a tensor for every time that it has met."""

    def __init__(self) -> None:
        self.cache: dict[int, Tensor] = {}

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        waves = [self.cache.setdefault(int(t), torch.sin(torch.tensor(float(t)))) for t in time]
        return 0.5 * x * (1.0 + 0.1 * torch.stack(waves).reshape(-1, 1, 1).to(x))


class Remembering:
    """Keeps its last input, and a grid of the last shape."""

    last: Tensor | None = None
    grid: Tensor | None = None

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        self.last = x
        if self.grid is None or self.grid.shape != x.shape:
            self.grid = torch.linspace(0, 1, x.shape[-1]).expand(x.shape).clone().to(x)
        return 0.5 * x + 0.01 * self.grid


class Growing(nn.Module):
    """Has a buffer, not persistent, that grows with the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(0.5))
        self.register_buffer("positions", torch.zeros(0), persistent=False)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        if len(self.positions) < len(x):
            self.register_buffer("positions", torch.arange(len(x) * 1.0), persistent=False)
        return self.weight * x


NAMES = np.array(["cat", "dog"], dtype=object)


def naming(x: Tensor, time: Tensor) -> Tensor:
    return 0.5 * x + 0.0 * len(NAMES)


@pytest.mark.parametrize("make", [Noting, Remembering, Growing, lambda: naming])
def test_what_a_network_keeps_beside_its_weights_does_not_count(make: Callable[[], Any], tmp_path: Path) -> None:
    def model() -> Denoiser:
        return Denoiser(make(), PROCESS, predicts="x0")

    path = tmp_path / "s.safetensors"
    one = model()
    before = one.fingerprint
    few = estimate(one, IMAGES, indices=[1, 5, T], checkpoint=path, progress=False)
    assert one.fingerprint == before
    every = estimate(one, IMAGES, checkpoint=path, progress=False)  # the same object, after it has run
    again = estimate(model(), IMAGES, reuse=few, batch_size=3, progress=False)  # another one, of another process, say
    np.testing.assert_allclose(again.squared_error, every.squared_error, rtol=1e-5)
    estimate_adaptively(model(), IMAGES, progress=False)


def test_a_wrapper_around_the_same_weights_does_not_count() -> None:
    few = estimate(Denoiser(Net(), PROCESS, predicts="x0"), IMAGES, indices=[1, T], progress=False)
    estimate(Denoiser(nn.DataParallel(Net()), PROCESS, predicts="x0"), IMAGES, reuse=few, progress=False)


def test_probes_look_at_samples_of_different_conditioning() -> None:
    """One label for the whole batch is found out even where most samples share a label."""
    labels = torch.zeros(48, dtype=torch.long)
    labels[5:12], labels[20:28] = 3, 7
    images = IMAGES[torch.arange(48) % len(IMAGES)]
    one = Denoiser(lambda x, time, y: 0.5 * x + 0.05 * y[0], PROCESS, predicts="x0")
    with pytest.raises(
        ValueError, match=r"depends on the other samples in its batch|different output in a batch of two"
    ):
        estimate(one, (images, labels), progress=False)
    each = Denoiser(lambda x, time, y: 0.5 * x + 0.05 * y.reshape(-1, 1, 1), PROCESS, predicts="x0")
    estimate(each, (images, labels), progress=False)


def test_small_outputs_may_round_as_the_numbers_that_they_are_differences_of() -> None:
    """As plain float32 networks of points do: 2e-6 in large batches, beside outputs of 1e-3 here and of 1 at the probes."""
    small = sparing(Net(), lambda out: 1e-3 * out)
    found = run(denoiser_of(lambda x, time: small(x, time) + (2e-6 if len(x) > 2 else 0.0), clip=(-1e3, 1e3)))
    assert found.samples == len(IMAGES)


# --- edits that spare the probes ------------------------------------------------------------------------------------------

PROBED = (1, 4, 8, 12)  # grid indices of the probes on this grid
ELSEWHERE = (
    r"holds work of a model that behaves differently: recomputed, at t = (2|3|5|6|7|9|10|11) the (error of x0_hat|sum of "
    r"phi) on sample \d is \S+ and not \S+, where rounding may change it by \S+ \(float\d+\), although its weights and its "
    r"outputs on the probes are the same: .* have changed\. "
    r"Undo the change to continue\. (Give another output|Estimate without reuse)"
)


def sparing(net: Callable[[Tensor, Tensor], Tensor], change: Callable[[Tensor], Tensor]) -> Any:
    """The network, changed wherever the probes do not look."""

    def edited(x: Tensor, time: Tensor) -> Tensor:
        out = net(x, time)
        probed = torch.isin(time, torch.tensor(PROBED) - 1)
        return torch.where(probed.reshape(-1, *[1] * (x.ndim - 1)), out, change(out))

    return edited


def learned(x: Tensor, time: Tensor) -> Tensor:
    return torch.cat([torch.tanh(x), 0.2 * torch.cos(x)], 1)


SPARING: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "x0": (sparing(Net(), lambda out: out), sparing(Net(), lambda out: 1.01 * out), {}),
    "eps": (
        sparing(Net(), lambda out: out),
        sparing(Net(), lambda out: out + 1e-3),
        {"predicts": "eps", "clip": (-1e3, 1e3)},
    ),
    "v, clipped": (
        sparing(Net(), lambda out: out),
        sparing(Net(), lambda out: 0.99 * out),
        {"predicts": "v", "clip": (-1.0, 1.0)},
    ),
    "variance": (
        learned,
        sparing(learned, lambda out: torch.cat([out[:, :3], 1.01 * out[:, 3:]], 1)),
        {"variance": "learned_range"},
    ),
    "not finite": (sparing(Net(), lambda out: out), sparing(Net(), lambda out: out * torch.nan), {}),
}


@pytest.mark.parametrize("edit", SPARING)
def test_an_edit_that_spares_the_probes_is_found_in_rows_that_are_taken_over(
    edit: str, tmp_path: Path, stopped: Callable[[Denoiser, Path], None]
) -> None:
    before, after, options = SPARING[edit]
    assert tuple(sorted(run(denoiser_of(before, **options)).behaviour.t)) == PROBED  # type: ignore[union-attr]
    begun, done = tmp_path / "begun", tmp_path / "done"
    stopped(denoiser_of(before, **options), begun)
    finished = run(denoiser_of(before, **options), checkpoint=done)
    for where in ({"checkpoint": begun}, {"checkpoint": done}, {"reuse": finished, "indices": [1, 5, T]}):
        with pytest.raises(OtherWorkError, match=ELSEWHERE):
            run(denoiser_of(after, **options), **where)
    # The unedited model goes on, at any batch size.
    assert_identical(run(denoiser_of(before, **options), checkpoint=begun), finished)
    for batch_size in (1, 3, 64):
        assert_identical(run(denoiser_of(before, **options), checkpoint=done, batch_size=batch_size), finished)


def test_every_row_can_be_drawn_and_draws_are_spread_over_all() -> None:
    kept = StoredRows.of_statistics(run(denoiser_of(Net())))
    drawn = [kept.draw(6) for _ in range(200)]
    assert {int(t) for times, _ in drawn for t in times} == set(range(1, T + 1))
    assert {int(column) for _, columns in drawn for column in columns} == set(range(9))
    for times, _ in drawn:  # one of every two rows, since there are 12
        assert [(int(t) - 1) // 2 for t in times] == list(range(6))


def test_an_edit_at_one_t_for_half_of_all_samples_is_found_sooner_or_later() -> None:
    """Sixteen places hold t = 2 once at least, and half of all samples: two hundred runs cannot all miss it."""
    known = run(denoiser_of(Net()))

    def edited(x: Tensor, time: Tensor, net: Net = Net()) -> Tensor:  # noqa: B008
        out = net(x, time)
        return torch.where((time == 1)[:, None, None] & (x.mean((1, 2), keepdim=True) > 0), out + 1e-2, out)

    def again_and_again() -> None:
        for _ in range(200):
            run(denoiser_of(edited), reuse=known)

    with pytest.raises(OtherWorkError, match="behaves differently: recomputed, at t = 2"):
        again_and_again()
