"""The denoiser: a network that is right about its own target gives clean data back, whatever it is fed and however."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from dpstride import Denoiser, ForwardProcess, NonFiniteError

SIGMAS = np.concatenate([[0.0], np.geomspace(0.01, 50.0, 12)])
PROCESSES = {
    "linear": ForwardProcess.linear(20),
    "cosine": ForwardProcess.cosine(20),
    "sub_vp": ForwardProcess.sub_vp(12),
    "vp_cosine": ForwardProcess.vp_cosine(12),
    "rectified_flow": ForwardProcess.rectified_flow(12),
    "ve": ForwardProcess.ve(SIGMAS),
}
LINEAR = PROCESSES["linear"]


def zeros(x: Tensor, time: Tensor) -> Tensor:
    return torch.zeros_like(x)


def noisy(process: ForwardProcess, t: int, seed: int = 0, shape: tuple[int, ...] = (5, 2, 3)) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    x0, eps = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2))
    return x0, eps, process.f[t] * x0 + process.g[t] * eps


class Recorder:
    """A network that keeps what it was called with and predicts 0."""

    def __init__(self) -> None:
        self.calls: list[tuple[Tensor, Tensor, tuple[Any, ...], dict[str, Any]]] = []

    def __call__(self, x: Tensor, time: Tensor, *extra: Any, **named: Any) -> Tensor:
        self.calls.append((x, time, extra, named))
        return torch.zeros_like(x)


class Small(nn.Module):
    """A real network with parameters in some precision: x W + time w, and dropout."""

    def __init__(self, width: int = 3, out: int | None = None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(width, out or width, dtype=dtype)
        self.dropout = nn.Dropout(0.5)
        self.seen: list[torch.dtype] = []

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        self.seen.append(x.dtype)
        return self.dropout(self.linear(x) + (time.to(x.dtype) / 100)[:, None])


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
    with pytest.raises(ValueError, match=r"did not take the conditioning .* Drop it if the model is unconditional"):
        Denoiser(zeros, LINEAR)(torch.zeros(2, 1), 1, torch.tensor([3, 1]))
    with pytest.raises(
        ValueError, match=r"did not take the conditioning .*'label'.* dict of the network's own keywords"
    ):
        Denoiser(zeros, LINEAR)(torch.zeros(2, 1), 1, {"label": torch.tensor([3, 1])})


def test_conditioning_that_is_missing_is_explained() -> None:
    def conditional(x: Tensor, time: Tensor, label: Tensor) -> Tensor:
        return x

    with pytest.raises(ValueError, match=r"cannot be called.*'label'\).*with the data, as a pair \(x, conditioning\)"):
        Denoiser(conditional, LINEAR)(torch.zeros(2, 1), 1)

    def broken(x: Tensor, time: Tensor) -> Tensor:
        raise TypeError("my own mistake")

    with pytest.raises(TypeError, match="my own mistake"):  # not ours to explain
        Denoiser(broken, LINEAR)(torch.zeros(2, 1), 1)


def test_a_network_without_time_is_explained() -> None:
    with pytest.raises(ValueError, match=r"cannot be called as network\(x, time\).*lambda x, time: network\(x\)"):
        Denoiser(lambda x: x, ForwardProcess.linear(30), predicts="x0")(torch.zeros(2, 3), 1)


# --- precision and mode -----------------------------------------------------------------------------------------------


class Holder:
    """A user's own class around a module."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        return self.module(x, time)

    def run(self, x: Tensor, time: Tensor) -> Tensor:
        return self.module(x, time)


def call(module: nn.Module, x: Tensor, time: Tensor) -> Tensor:
    return module(x, time)


WRAPPERS: dict[str, Callable[[nn.Module], Callable[..., Tensor]]] = {
    "itself": lambda module: module,
    "lambda": lambda module: lambda x, time: module(x, time),
    "default argument": lambda module: lambda x, time, module=module: module(x, time),
    "partial": lambda module: functools.partial(call, module),
    "lambda of partial": lambda module: (lambda inner: lambda x, time: inner(x, time))(functools.partial(call, module)),
    "bound method": lambda module: Holder(module).run,
    "bound forward": lambda module: module.forward,
    "callable object": Holder,
    "list in a closure": lambda module: (lambda models: lambda x, time: models[0](x, time))([module]),
    "dict in a closure": lambda module: (lambda models: lambda x, time: models["ema"](x, time))({"ema": module}),
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_precision_is_found_from_the_parameters_also_inside_wrappers(wrapper: str, dtype: torch.dtype) -> None:
    """The network runs in its own precision, everything around it in float64; rounding of the precision is allowed."""
    module = Small(dtype=dtype)
    exact = Small(dtype=torch.float64)
    exact.load_state_dict(module.state_dict())
    denoiser = Denoiser(WRAPPERS[wrapper](module), LINEAR, predicts="x0", clip=None)
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    prediction = denoiser(x, 7)
    assert denoiser.dtype == dtype
    assert set(module.seen) == {dtype}
    assert prediction.x0_hat.dtype == torch.float64
    expected = Denoiser(exact, LINEAR, predicts="x0", clip=None)(x, 7).x0_hat
    torch.testing.assert_close(prediction.x0_hat, expected, rtol=0, atol=8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_modules_are_put_in_evaluation_mode(wrapper: str) -> None:
    """Dropout would make every result a draw: two calls must agree exactly."""
    module = Small().train()
    denoiser = Denoiser(WRAPPERS[wrapper](module), LINEAR, clip=None)
    assert not module.training
    x = torch.ones(8, 3)
    torch.testing.assert_close(denoiser(x, 3).x0_hat, denoiser(x, 3).x0_hat, rtol=0, atol=0)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_fingerprint_changes_with_the_weights_also_inside_wrappers(wrapper: str) -> None:
    module = Small()
    denoiser = Denoiser(WRAPPERS[wrapper](module), LINEAR)
    before = denoiser.fingerprint
    assert denoiser.fingerprint == before
    again = Denoiser(WRAPPERS[wrapper](Small()), LINEAR)
    assert again.fingerprint == before  # same weights
    with torch.no_grad():
        module.linear.bias[1] += 1e-6
    assert denoiser.fingerprint != before


def test_a_function_of_time_is_known_by_its_values() -> None:
    told = [Denoiser(zeros, LINEAR, time_input=u).describe()["time_input"] for u in (lambda i: i, lambda i: 2 * i)]
    assert told[0] != told[1]
    assert told[0] == Denoiser(zeros, LINEAR, time_input=lambda step: int(step)).describe()["time_input"]


def test_a_callable_without_parameters_gets_the_highest_precision_it_accepts() -> None:
    weight = {dtype: torch.eye(3, dtype=dtype) for dtype in (torch.float64, torch.float32, torch.bfloat16)}
    for dtype, matrix in weight.items():
        seen: list[torch.dtype] = []

        def network(x: Tensor, time: Tensor, matrix: Any = matrix, seen: list[torch.dtype] = seen) -> Tensor:
            seen.append(x.dtype)
            return x @ matrix

        denoiser = Denoiser(network, LINEAR, predicts="x0", clip=None)
        denoiser(torch.ones(2, 3), 1)
        denoiser(torch.ones(2, 3), 2)
        assert denoiser.dtype == dtype
        assert seen[-2:] == [dtype, dtype]  # found once, then known


def test_an_error_inside_the_network_is_not_mistaken_for_a_precision() -> None:
    def network(x: Tensor, time: Tensor) -> Tensor:
        raise RuntimeError("out of luck")

    with pytest.raises(RuntimeError, match="out of luck"):
        Denoiser(network, LINEAR)(torch.zeros(2, 1), 1)


def test_a_stated_precision_is_used() -> None:
    network = Recorder()
    Denoiser(network, LINEAR, dtype=torch.float32, time_input="time")(torch.zeros(2, 1), 1)
    x, time, _, _ = network.calls[0]
    assert (x.dtype, time.dtype) == (torch.float32, torch.float32)


def test_float_time_stays_exact_for_half_precision_networks() -> None:
    """bfloat16 has 8 bits: 999 would become 1000. Time is float32 at least."""
    times: list[Tensor] = []

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))

        def forward(self, x: Tensor, time: Tensor) -> Tensor:
            times.append(time)
            return x * self.scale

    Denoiser(Half(), ForwardProcess.linear(1000), time_input="time")(torch.zeros(1, 1), 999)
    assert float(times[0]) == 999.0


def test_no_gradient_is_kept() -> None:
    assert not Denoiser(Small(), LINEAR)(torch.zeros(2, 3), 1).x0_hat.requires_grad


# --- shape and output -------------------------------------------------------------------------------------------------


def test_shape_is_learnt_from_the_first_batch_and_kept() -> None:
    denoiser = Denoiser(zeros, LINEAR)
    denoiser(torch.zeros(2, 3, 4), 1)
    assert denoiser.shape == (3, 4)
    with pytest.raises(ValueError, match=r"samples of shape \(3, 4\), but the data has shape \(3, 5\)\. Reshape"):
        denoiser(torch.zeros(2, 3, 5), 1)
    with pytest.raises(ValueError, match=r"samples of shape \(1, 8\), but the data has shape \(8,\)"):
        Denoiser(zeros, LINEAR, shape=(1, 8))(torch.zeros(2, 8), 1)


@pytest.mark.parametrize(
    ("variance", "output", "message"),
    [
        (
            "posterior",
            lambda x: (x,),
            r"must return a tensor, not tuple\. Wrap it, for example .*\.sample for a diffusers",
        ),
        ("posterior", lambda x: x.numpy(), r"must return a tensor, not ndarray"),
        ("posterior", lambda x: None, r"must return a tensor, not NoneType"),
        ("posterior", lambda x: x[:1], r"must return the shape of x, \(2, 3, 4\), but it returned \(1, 3, 4\)\."),
        (
            "upper",
            lambda x: torch.cat([x, x], dim=1),
            r"variance='upper' .* \(2, 3, 4\), but it returned \(2, 6, 4\)\. Twice the channels .*'learned_range'",
        ),
        (
            "learned_range",
            lambda x: x,
            r"variance='learned_range' .* twice the channels of x \(prediction, then v\), \(2, 6, 4\), but .* \(2, 3, 4\)\.$",
        ),
    ],
)
def test_an_output_of_the_wrong_kind_is_refused(variance: Any, output: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Denoiser(lambda x, time: output(x), LINEAR, variance=variance)(torch.zeros(2, 3, 4), 1)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_nan_and_infinity_name_the_step(value: float) -> None:
    def network(x: Tensor, time: Tensor) -> Tensor:
        return torch.where((time == 12)[:, None], value, x)

    denoiser = Denoiser(network, LINEAR)
    denoiser(torch.zeros(3, 1), 12)
    with pytest.raises(
        NonFiniteError, match=r"NaN or infinity at grid step t = 13 \(time 13\), for 3 of 3 samples.*bfloat16"
    ):
        denoiser(torch.zeros(3, 1), 13)
    with pytest.raises(NonFiniteError, match=r"at grid step t = 13 \(time 13\), for 1 of 3 samples"):
        denoiser(torch.zeros(3, 1), torch.tensor([4, 13, 5]))
    thinned = denoiser.on_grid(LINEAR.subset([13, 20]))
    with pytest.raises(NonFiniteError, match=r"at grid step t = 1 \(time 13\)"):
        thinned(torch.zeros(3, 1), 1)


# --- another grid -----------------------------------------------------------------------------------------------------


def test_on_grid_keeps_everything_but_the_grid() -> None:
    denoiser = Denoiser(
        Small(out=6), LINEAR, predicts="v", variance="learned_range", clip=(-2, 2), shape=(3,), name="mine"
    )
    coarse = denoiser.on_grid(LINEAR.subset([4, 20]))
    assert coarse.describe() == denoiser.describe()
    assert (coarse.shape, coarse.device, coarse.dtype) == (denoiser.shape, denoiser.device, denoiser.dtype)
    x = torch.randn(2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    torch.testing.assert_close(coarse(x, 1).x0_hat, denoiser(x, 4).x0_hat, rtol=0, atol=0)


def test_a_discrete_model_stays_on_its_training_steps() -> None:
    denoiser = Denoiser(zeros, LINEAR)
    for other in (ForwardProcess.linear(10), ForwardProcess.cosine(20)):
        with pytest.raises(ValueError, match=r"is not a subset of the training steps .* Use denoiser\.process\.subset"):
            denoiser.on_grid(other)
    with pytest.raises(
        ValueError, match=r"continuous grid was given to a model of a discrete process\. Pass trained_cont"
    ):
        denoiser.on_grid(ForwardProcess.vp_linear(10))
    coarse = denoiser.on_grid(LINEAR.subset([5, 10]))
    with pytest.raises(ValueError, match="not a subset of the training steps"):
        coarse.on_grid(LINEAR)  # a thinned denoiser knows only its own steps


def test_a_continuous_model_takes_any_times_of_its_own_functions() -> None:
    network = Recorder()
    denoiser = Denoiser(network, PROCESSES["rectified_flow"], predicts="flow", time_input="time")
    denoiser.on_grid(ForwardProcess.rectified_flow(times=[0.0, 0.123, 1.0]))(torch.zeros(1, 1), 1)
    assert float(network.calls[-1][1]) == 0.123
    with pytest.raises(ValueError, match=r"f and g of the grid \('sub_vp'\) are not those .* \('rectified_flow'\)"):
        denoiser.on_grid(ForwardProcess.sub_vp(10))
    with pytest.raises(ValueError, match=r"A discrete grid was given to a model of a continuous process"):
        denoiser.on_grid(LINEAR)


@pytest.mark.parametrize("time_input", ["index0", "rescaled", lambda i: i])
def test_a_time_that_names_steps_of_one_grid_is_not_fed_on_another(time_input: Any) -> None:
    """index0 of another grid is another noise level: the network would be told a lie, and nobody would see it."""
    denoiser = Denoiser(zeros, PROCESSES["sub_vp"], time_input=time_input)
    denoiser.on_grid(PROCESSES["sub_vp"].subset([3, 12]))
    with pytest.raises(
        ValueError, match=r"names steps of the grid that the Denoiser was built on.*Use time_input='time'"
    ):
        denoiser.on_grid(ForwardProcess.sub_vp(6))


def test_a_model_trained_on_continuous_levels_takes_any_grid() -> None:
    network = Recorder()
    denoiser = Denoiser(network, LINEAR, trained_continuous=True, time_input="time")
    for other in (ForwardProcess.linear(7), ForwardProcess.vp_linear(7), ForwardProcess.cosine(9)):
        denoiser.on_grid(other)(torch.zeros(1, 1), 7)
        assert float(network.calls[-1][1]) == other.times[7]


# --- bad arguments ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"predicts": "noise"}, r"predicts must be 'eps', 'x0', 'v' or 'flow', not 'noise'"),
        ({"variance": "learned"}, r"variance must be 'posterior', 'upper' or 'learned_range', not 'learned'"),
        ({"variance": "optimal"}, r"variance must be 'posterior', 'upper' or 'learned_range', not 'optimal'"),
        ({"clip": (1.0, -1.0)}, r"clip must be None or \(low, high\) with low < high, not \(1\.0, -1\.0\)"),
        ({"clip": 1.0}, r"clip must be None or \(low, high\) with low < high, not 1\.0"),
        ({"clip": (-1.0, float("nan"))}, r"clip must be None or \(low, high\)"),
        ({"time_input": "t"}, r"time_input must be 'index0', 'time', 'rescaled' or a callable .*, not 't'"),
        ({"network": 3}, r"network must be callable as network\(x, time\), not int"),
        ({"process": [0.1]}, r"process must be a ForwardProcess, not list"),
    ],
)
def test_bad_arguments_name_rule_and_value(options: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"network": zeros, "process": LINEAR} | options
    with pytest.raises(ValueError, match=message):
        Denoiser(arguments.pop("network"), arguments.pop("process"), **arguments)


def test_a_denoiser_moves_with_its_modules() -> None:
    """There is one device here that holds values, so it goes to the one that holds none."""
    network = torch.nn.Linear(3, 3)
    denoiser = Denoiser(lambda x, time: network(x), ForwardProcess.linear(5), predicts="x0", clip=(-2, 2), name="mine")
    moved = denoiser.to("meta")
    assert moved.device == torch.device("meta")
    assert network.weight.device == torch.device("meta")
    assert (moved.predicts, moved.clip, moved.name, moved.dtype) == ("x0", (-2.0, 2.0), "mine", torch.float32)
