"""Networks of every kind in a denoiser: wrappers, precision, wrong outputs, other grids."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dpstride import Denoiser, ForwardProcess, NonFiniteError
from recorded import LINEAR, PROCESSES, Recorder, Small, zeros

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


def test_infinities_of_both_signs_are_found_and_large_finite_outputs_pass() -> None:
    large = torch.finfo(torch.float64).max
    both = torch.tensor([[float("inf")], [-float("inf")], [0.0]])
    with pytest.raises(NonFiniteError, match="for 2 of 3 samples"):
        Denoiser(lambda x, time: both, LINEAR, predicts="x0")(torch.zeros(3, 1), 1)
    # The sum of these is infinite, but none of them is.
    found = Denoiser(lambda x, time: torch.full_like(x, large), LINEAR, predicts="x0")(torch.zeros(3, 1), 1)
    assert found.x0_hat.tolist() == [[1.0]] * 3


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
        ({"predicts": "noise"}, r"predicts must be one of 'eps', 'x0', 'v', 'flow', not 'noise'"),
        ({"variance": "learned"}, r"variance must be one of 'posterior', 'upper', 'learned_range', not 'learned'"),
        ({"variance": "optimal"}, r"variance must be one of 'posterior', 'upper', 'learned_range', not 'optimal'"),
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


def test_a_helper_that_gets_its_value_later_is_no_obstacle() -> None:
    """Python calls such a name an empty cell, and cannot list what the function uses."""

    def made() -> Denoiser:
        denoiser = Denoiser(lambda x, time: helper(x), LINEAR)

        def helper(x: Tensor) -> Tensor:
            return 0.5 * x

        return denoiser

    assert torch.equal(made().response(torch.ones(1, 2), 1), torch.full((1, 2), 0.5))
