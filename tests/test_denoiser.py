"""The denoiser: a network that is right about its own target gives clean data back, whatever it is fed and however."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from dpstride import Denoiser, ForwardProcess
from recorded import LINEAR, PROCESSES, SIGMAS, Recorder, zeros


def noisy(process: ForwardProcess, t: int, seed: int = 0, shape: tuple[int, ...] = (5, 2, 3)) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    x0, eps = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2))
    return x0, eps, process.f[t] * x0 + process.g[t] * eps


# --- what the network predicts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("predicts", ["eps", "x0", "v", "flow"])
@pytest.mark.parametrize("name", PROCESSES)
def test_a_network_that_knows_its_target_gives_clean_data(name: str, predicts: Any) -> None:
    """Targets as defined: eps; x_0; v = f eps − g x_0; flow = eps − x_0. Rounding is divided by f for eps."""
    process = PROCESSES[name]
    last = process.T if process.f[-1] > 0.0 or predicts != "eps" else process.T - 1
    process = process.subset(range(last + 1))
    for t in range(1, process.T + 1):
        x0, eps, x_t = noisy(process, t)
        f, g = process.f[t], process.g[t]
        target = {"eps": eps, "x0": x0, "v": f * eps - g * x0, "flow": eps - x0}[predicts]
        denoiser = Denoiser(lambda x, time, target=target: target, process, predicts=predicts, clip=None)
        prediction = denoiser(x_t, t)
        assert prediction.x0_hat.dtype == torch.float64
        assert prediction.fraction is None
        tolerance = 1e-14 / f if predicts == "eps" else 1e-13
        torch.testing.assert_close(prediction.x0_hat, x0, rtol=0.0, atol=float(tolerance))


@pytest.mark.parametrize("name", ["rectified_flow", "vp_cosine"])
def test_eps_is_refused_where_the_signal_is_gone(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"predicts='eps' needs f > 0 .* f = 0 at grid index 12, .* predicts x0, v or flow"
    ):
        Denoiser(zeros, PROCESSES[name], predicts="eps")
    Denoiser(zeros, PROCESSES[name].subset(range(12)), predicts="eps")  # a grid that ends before pure noise is fine


@given(st.floats(-5, 5), st.floats(-3, 0), st.floats(0.1, 3))
def test_x0_hat_is_clipped_and_nothing_else(value: float, low: float, high: float) -> None:
    denoiser = Denoiser(lambda x, time: torch.full_like(x, value), LINEAR, predicts="x0", clip=(low, high))
    assert float(denoiser(torch.zeros(1, 1), 3).x0_hat) == min(max(value, low), high)
    free = Denoiser(lambda x, time: torch.full_like(x, value), LINEAR, predicts="x0", clip=None)
    assert float(free(torch.zeros(1, 1), 3).x0_hat) == value
    assert denoiser.describe()["clip"] == [low, high]
    assert free.describe()["clip"] is None


def test_learned_range_is_prediction_then_v_and_the_fraction_is_not_clamped() -> None:
    """Nichol and Dhariwal: 2C channels, the first C predict, φ = (v + 1)/2."""
    x0, v = (
        torch.full((2, 3, 4), 0.25, dtype=torch.float64),
        torch.linspace(-7, 9, 24, dtype=torch.float64).reshape(2, 3, 4),
    )
    denoiser = Denoiser(lambda x, time: torch.cat([x0, v], dim=1), LINEAR, predicts="x0", variance="learned_range")
    prediction = denoiser(torch.zeros(2, 3, 4), 5)
    torch.testing.assert_close(prediction.x0_hat, x0)
    assert prediction.fraction is not None
    torch.testing.assert_close(prediction.fraction, (v + 1) / 2)


# --- what the network is fed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("time_input", "expected", "floating"),
    [
        ("index0", lambda step: step - 1, False),
        ("time", lambda step: step, True),
        ("rescaled", lambda step: (step - 1) * 1000 / 20, True),
        (lambda step: 7 * step, lambda step: 7 * step, False),
        (lambda step: 1.0 / step, lambda step: 1.0 / step, True),
    ],
)
def test_time_is_that_of_the_training_step_also_on_a_thinned_grid(
    time_input: Any, expected: Callable[[int], float], floating: bool
) -> None:
    network = Recorder()
    denoiser = Denoiser(network, LINEAR, time_input=time_input, dtype=torch.float64)
    denoiser(torch.zeros(2, 1), 9)
    coarse = denoiser.on_grid(LINEAR.subset([3, 9, 20]))
    coarse(torch.zeros(2, 1), 2)
    for _, time, _, _ in network.calls:
        assert time.shape == (2,)
        assert time.is_floating_point() == floating
        np.testing.assert_allclose(time.numpy(), expected(9), rtol=1e-15)


def test_float_time_of_a_continuous_process_is_its_own_time() -> None:
    network = Recorder()
    process = ForwardProcess.rectified_flow(times=[0.0, 0.1, 0.35, 1.0])
    Denoiser(network, process, predicts="flow", time_input="time")(torch.zeros(1, 1), 2)
    assert float(network.calls[0][1]) == 0.35


def test_x_is_fed_in_the_networks_own_coordinates() -> None:
    """VE: the process lives in x_t/sqrt(1 + σ²), the network in x_0 + σ eps."""
    process, network = PROCESSES["ve"], Recorder()
    denoiser = Denoiser(network, process, predicts="x0", time_input="time")
    for t in (1, 6, process.T):
        x0, eps, x_t = noisy(process, t)
        denoiser(x_t, t)
        torch.testing.assert_close(network.calls[-1][0], x0 + SIGMAS[t] * eps, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("variance", ["posterior", "learned_range"])
@pytest.mark.parametrize("name", PROCESSES)
def test_one_step_per_sample_equals_single_steps(name: str, variance: Any) -> None:
    process = PROCESSES[name]

    def network(x: Tensor, time: Tensor) -> Tensor:
        out = torch.sin(x) * time[:, None].to(x.dtype) / 1000
        return torch.cat([out, out.cos()], dim=1) if variance == "learned_range" else out

    denoiser = Denoiser(network, process, predicts="v", variance=variance, clip=None)
    steps = torch.tensor([1, process.T, 4, 4])
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    together = denoiser(x, steps)
    for i, t in enumerate(steps.tolist()):
        alone = denoiser(x[i : i + 1], t)
        torch.testing.assert_close(together.x0_hat[i : i + 1], alone.x0_hat, rtol=0, atol=0)
        if variance == "learned_range":
            torch.testing.assert_close(together.fraction[i : i + 1], alone.fraction, rtol=0, atol=0)


@pytest.mark.parametrize("t", [0, 21, -1, 2.5, torch.tensor([1, 2, 3]), torch.tensor([0, 1]), torch.tensor([1.0, 2.0])])
def test_a_step_off_the_grid_is_refused(t: Any) -> None:
    with pytest.raises(
        ValueError, match=r"t must be a grid index from 1 to T = 20, or one per sample \(2 of them\), not"
    ):
        Denoiser(zeros, LINEAR)(torch.zeros(2, 1), t)


def test_conditioning_travels_as_an_argument_or_as_keywords() -> None:
    network = Recorder()
    denoiser = Denoiser(network, LINEAR)
    labels = torch.tensor([3, 1])
    denoiser(torch.zeros(2, 1), 1, labels)
    ((given,), named) = network.calls[-1][2:]
    assert torch.equal(given, labels)
    assert named == {}
    text = ["a cat", "a dog"]
    denoiser(torch.zeros(2, 1), 1, {"labels": labels, "text": text})
    extra, named = network.calls[-1][2:]
    assert (extra, named["text"]) == ((), text)
    assert torch.equal(named["labels"], labels)


def test_conditioning_that_the_network_does_not_take_is_explained() -> None:
    with pytest.raises(ValueError, match=r"did not accept the conditioning .* Drop it if the model is unconditional"):
        Denoiser(zeros, LINEAR)(torch.zeros(2, 1), 1, torch.tensor([3, 1]))
    with pytest.raises(
        ValueError,
        match=r"did not accept the conditioning .*'label'.* dict of the network's own keywords; arrays in a file are passed",
    ):
        Denoiser(zeros, LINEAR)(torch.zeros(2, 1), 1, {"label": torch.tensor([3, 1])})


def test_a_channel_axis_that_the_network_adds_is_explained() -> None:
    with pytest.raises(ValueError, match=r"returned \(2, 1, 8\)\. .*give data\[:, None\]"):
        Denoiser(lambda x, time: x[:, None], LINEAR)(torch.zeros(2, 8), 1)


def test_conditioning_that_is_missing_is_explained() -> None:
    def conditional(x: Tensor, time: Tensor, label: Tensor) -> Tensor:
        return x

    with pytest.raises(
        ValueError, match=r"cannot be called.*'label'\).*as a pair \(x, conditioning\), and sample with"
    ):
        Denoiser(conditional, LINEAR)(torch.zeros(2, 1), 1)

    def broken(x: Tensor, time: Tensor) -> Tensor:
        raise TypeError("my own mistake")

    with pytest.raises(TypeError, match="my own mistake"):  # not ours to explain
        Denoiser(broken, LINEAR)(torch.zeros(2, 1), 1)


def test_a_network_without_time_is_explained() -> None:
    with pytest.raises(ValueError, match=r"cannot be called as network\(x, time\).*lambda x, time: network\(x\)"):
        Denoiser(lambda x: x, ForwardProcess.linear(30), predicts="x0")(torch.zeros(2, 3), 1)
