"""Networks that write into their arguments, return them, or take one time for the batch."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from quiet_networks import IMAGES, LABELS, PROCESS, SHAPE, TAKES, conditional, honest, per_sample, run
from torch import Tensor

from dpstride import Denoiser, ForwardProcess, estimate, estimate_trajectory

pytestmark = pytest.mark.attack("networks that misbehave quietly")


# --- harmless ---------------------------------------------------------------------------------------------------------


def writes_into_x(x: Tensor, time: Tensor) -> Tensor:
    out = honest(x, time)
    x.zero_()
    return out


def writes_into_time(x: Tensor, time: Tensor) -> Tensor:
    out = honest(x, time)
    time.fill_(0)
    return out


def returns_what_it_was_given(x: Tensor, time: Tensor) -> Tensor:
    return x.add_(0.05 * per_sample(time, x)).sin_()


def resizes_x(x: Tensor, time: Tensor) -> Tensor:
    out = honest(x, time)
    x.unsqueeze_(0)
    return out


class ReturnsOneTensor:
    """Every call writes into the tensor that the last one of that size returned."""

    def __init__(self) -> None:
        self.kept: dict[int, Tensor] = {}

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        out = self.kept.setdefault(len(x), torch.empty_like(x))
        return out.copy_(honest(x, time))


def with_gradients(x: Tensor, time: Tensor) -> Tensor:
    with torch.enable_grad():
        return honest(x.requires_grad_(), time)


def by_gradient(x: Tensor, time: Tensor) -> Tensor:
    """The same output, as the gradient of an energy: −cos has the derivative sin."""
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        energy = -torch.cos(x + 0.05 * per_sample(time, x)).sum()
        return torch.autograd.grad(energy, x)[0]


@pytest.mark.parametrize(
    "network",
    [
        writes_into_x,
        writes_into_time,
        returns_what_it_was_given,
        resizes_x,
        ReturnsOneTensor(),
        with_gradients,
        by_gradient,
    ],
)
def test_what_a_network_does_to_its_arguments_reaches_nothing_else(network: Any) -> None:
    np.testing.assert_allclose(run(network).squared_error, run(honest).squared_error, rtol=1e-12)


@pytest.mark.parametrize(
    "kind", ["tensor", "keywords", "nested", "list", "list of tensors", "list of objects", "list of sets"]
)
def test_conditioning_that_a_network_writes_into_stays_the_callers(kind: str) -> None:
    expected = run(conditional, (IMAGES, LABELS)).squared_error
    labels: Any = LABELS.clone()
    match kind:
        case "tensor":

            def network(x: Tensor, time: Tensor, label: Tensor) -> Tensor:
                out = conditional(x, time, label)
                label.add_(1)
                return out

        case "keywords":
            labels = {"label": labels}

            def network(x: Tensor, time: Tensor, label: Tensor) -> Tensor:
                out = conditional(x, time, label)
                label.zero_()
                return out

        case "nested":
            labels = {"added": {"label": labels}}

            def network(x: Tensor, time: Tensor, added: dict[str, Tensor]) -> Tensor:
                return conditional(x, time, added.pop("label").mul_(1))

        case "list":
            labels = labels.tolist()

            def network(x: Tensor, time: Tensor, label: list[int]) -> Tensor:
                out = conditional(x, time, torch.tensor(label))
                label.clear()
                return out

        case "list of tensors":
            labels = list(labels)

            def network(x: Tensor, time: Tensor, label: list[Tensor]) -> Tensor:
                out = conditional(x, time, torch.stack(label))
                for each in label:
                    each.zero_()
                return out

        case "list of objects":
            labels = [SimpleNamespace(label=label) for label in labels.tolist()]

            def network(x: Tensor, time: Tensor, label: list[Any]) -> Tensor:
                out = conditional(x, time, torch.tensor([each.label for each in label]))
                for each in label:
                    each.label = 0
                return out

        case "list of sets":
            labels = [{label} for label in labels.tolist()]

            def network(x: Tensor, time: Tensor, label: list[set[int]]) -> Tensor:
                return conditional(x, time, torch.tensor([each.pop() for each in label]))

    found = run(network, (IMAGES, labels)).squared_error
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    while isinstance(labels, dict):
        (labels,) = labels.values()
    plain = {"list of objects": lambda each: each.label, "list of sets": lambda each: each.pop()}.get(kind, int)
    assert [plain(label) for label in labels] == LABELS.tolist()


def test_trajectories_of_a_network_that_returns_one_tensor_are_right() -> None:
    found, expected = (
        estimate_trajectory(
            Denoiser(network, PROCESS, predicts="x0", clip=None, shape=SHAPE, dtype=torch.float64), 4, progress=False
        )
        for network in (ReturnsOneTensor(), honest)
    )
    np.testing.assert_allclose(found.deviation, expected.deviation, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.amplification, expected.amplification, rtol=1e-9)


@pytest.mark.parametrize("strength", [0.05, 1e-4])
@pytest.mark.parametrize("take", TAKES)
def test_a_network_with_one_time_for_the_batch_gets_batches_of_one_time(take: str, strength: float) -> None:
    """Also where its output hardly depends on time, by less than 16 bits would round."""

    def one(x: Tensor, time: Tensor) -> Tensor:
        return torch.sin(x + strength * float(TAKES[take](time)))

    def each(x: Tensor, time: Tensor) -> Tensor:
        return torch.sin(x + strength * per_sample(time, x))

    found, expected = run(one), run(each)
    np.testing.assert_allclose(found.squared_error, expected.squared_error, rtol=1e-9)


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_one_time_is_found_on_short_grids(steps: int) -> None:
    process = ForwardProcess.cosine(steps)
    found, expected = (
        estimate(Denoiser(network, process, predicts="x0", clip=None), IMAGES, batch_size=64, progress=False)
        for network in (lambda x, time: torch.sin(x + time.max()), lambda x, time: torch.sin(x + per_sample(time, x)))
    )
    np.testing.assert_allclose(found.squared_error, expected.squared_error, rtol=1e-9)
