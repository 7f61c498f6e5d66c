"""Arguments of a wrong kind: every verb names what it takes, what it was given, and what to do."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

import dpstride
from dpstride.finding.job import Request
from dpstride.masked.sampling import Revealing
from dpstride.masked.schedule import MaskedScheduleSet
from dpstride.racing.wish import Wish
from dpstride.runs.execution import Execution, Work, WorkOnData
from dpstride.statistics.trajectory import TableSizes
from dpstride.strides import RULES
from small_network import IMAGES, PROCESS, denoiser_of, run

DENOISER = denoiser_of(shape=(2, 3))
SCHEDULE = dpstride.even_stride(PROCESS, 3)
SCHEDULES = dpstride.ScheduleSet.of([SCHEDULE])
Call = Callable[[], Any]

SWAPPED: dict[str, tuple[Call, str]] = {
    "optimise": (
        lambda: dpstride.optimise(IMAGES, DENOISER),
        r"denoiser must be a Denoiser, not a Tensor\. The order is optimise\(denoiser, data, samples, seed\)\.",
    ),
    "optimise, network": (
        lambda: dpstride.optimise(DENOISER.network, IMAGES),
        r"not a Net\. .* Make one of a network: Denoiser\(network, process",
    ),
    "optimise, process": (lambda: dpstride.optimise(PROCESS, IMAGES), "not a ForwardProcess"),
    "estimate": (lambda: dpstride.estimate(IMAGES, DENOISER), r"estimate\(denoiser, data, samples, seed\)"),
    "estimate_adaptively": (lambda: dpstride.estimate_adaptively(IMAGES, DENOISER), "must be a Denoiser, not a Tensor"),
    "estimate_trajectory": (lambda: dpstride.estimate_trajectory(PROCESS), "must be a Denoiser, not a ForwardProcess"),
    "check": (lambda: dpstride.check(IMAGES, DENOISER), r"check\(denoiser, data, seed"),
    "sample": (
        lambda: dpstride.sample(SCHEDULE, DENOISER),
        r"not a Schedule\. The order is sample\(denoiser, schedule, n",
    ),
    "sample, set": (
        lambda: dpstride.sample(DENOISER, SCHEDULES),
        r"not a ScheduleSet\. .* Choose one of the set, for example schedules\[3\]",
    ),
    "sample, number": (lambda: dpstride.sample(DENOISER, 3), r"schedule must be a Schedule, not 3\. .*even_stride"),
    "bits_per_dim": (
        lambda: dpstride.bits_per_dim(DENOISER, SCHEDULE, IMAGES),
        r"schedule must be a Schedule, not a Tensor\. The order is bits_per_dim\(denoiser, heldout, schedule, seed\)",
    ),
    "score": (
        lambda: dpstride.score(SCHEDULES, DENOISER),
        r"heldout must be Statistics, not a ScheduleSet\. .*estimate\(",
    ),
    "compare": (lambda: dpstride.compare(run(), SCHEDULES), "schedules must be a ScheduleSet, not a Statistics"),
    "compare, one": (lambda: dpstride.compare(SCHEDULE, run()), r"Make a set of it: ScheduleSet\.of"),
    "elbo_costs": (lambda: dpstride.elbo_costs(DENOISER), "statistics must be Statistics, not a Denoiser"),
    "band_costs": (lambda: dpstride.band_costs(DENOISER), "statistics must be Statistics, not a Denoiser"),
    "schedules_from": (lambda: dpstride.schedules_from(DENOISER), "statistics must be Statistics, not a Denoiser"),
    "refine_schedule": (lambda: dpstride.refine_schedule(SCHEDULE, 3), "statistics must be Statistics, not a Schedule"),
    "trajectory_costs": (
        lambda: dpstride.trajectory_costs(DENOISER),
        "trajectory must be a Trajectory, not a Denoiser",
    ),
    "find": (
        lambda: dpstride.find(IMAGES, DENOISER, "out"),
        "The model must be a dpstride.Denoiser.* not Tensor. Give the model first, then the data",
    ),
    "find, heldout": (
        lambda: dpstride.find(DENOISER, IMAGES, IMAGES, "out"),
        r"output must be a path, not a Tensor\. The order is find\(model, data, output, heldout\)",
    ),
    "tune": (lambda: dpstride.tune(DENOISER, IMAGES, 8), "output must be a path, not 8"),
    "Schedule": (
        lambda: dpstride.Schedule(DENOISER, (9, 0)),
        r"not a Denoiser\. .*Give its \.process",
    ),
    "adopt": (lambda: SCHEDULES.adopt(3), r"schedule must be a Schedule, not 3\. The order is adopt\(schedule\)"),
    "of": (lambda: dpstride.ScheduleSet.of(SCHEDULE), r"takes a list of schedules.* Give \[schedule\]"),
    "solve": (
        lambda: dpstride.solve(DENOISER),
        r"takes costs of steps, not a Denoiser\. Give the result of elbo_costs",
    ),
}


@pytest.mark.parametrize("name", SWAPPED)
def test_arguments_of_a_wrong_kind_are_told_from_what_is_meant(name: str) -> None:
    call, words = SWAPPED[name]
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize("stride", RULES)
def test_strides_name_themselves(stride: str) -> None:
    make: Any = RULES[stride].make
    with pytest.raises(ValueError, match=rf"^{make.__name__}: process must be a ForwardProcess, not 3\."):
        make(3, PROCESS)
    with pytest.raises(ValueError, match="whole number of steps from 1 to T = 9, not '3'"):
        make(PROCESS, "3")


@pytest.mark.parametrize("key", ["3", 3.0, None, True])
@pytest.mark.parametrize("schedules", [SCHEDULES, MaskedScheduleSet(4, {3: ((4, 2, 1, 0), None, None)})])
def test_schedules_are_looked_up_by_whole_numbers(schedules: Any, key: object) -> None:
    with pytest.raises(ValueError, match=rf"whole number of (steps|rounds), as in schedules\[8\], not {key!r}"):
        schedules[key]
    with pytest.raises(ValueError, match=r"not by a slice. Take \[schedules\[K\] for K in"):
        schedules[2:5]
    assert schedules[3].budget == 3


def test_numbers_of_steps_that_are_no_numbers_are_refused() -> None:
    solution = dpstride.solve(dpstride.elbo_costs(run()))
    with pytest.raises(ValueError, match="A budget must be a whole number of steps, not '3'"):
        solution.path("3")
    with pytest.raises(ValueError, match=r"max_budget must be a whole number of steps, not 2\.5"):
        dpstride.solve(dpstride.elbo_costs(run()), 2.5)
    with pytest.raises(
        ValueError, match=r"budgets must be a list of whole numbers of steps between 1 and T = 9.* not 3"
    ):
        dpstride.optimise(DENOISER, IMAGES, budgets=3, tolerance=0.1)
    with pytest.raises(ValueError, match="The tolerance must be 0 or more bits/dim, not 'a'"):
        SCHEDULES.within("a")
    for tolerance in (math.nan, math.inf, "a", 0):
        with pytest.raises(ValueError, match=rf"tolerance must be a positive number, .* not {tolerance!r}\."):
            dpstride.find(DENOISER, IMAGES, "out", tolerance=tolerance)
    with pytest.raises(ValueError, match=r"steps must be whole grid indices, not 9\. Give a list"):
        dpstride.Schedule(PROCESS, 9)


def test_a_single_schedule_is_not_several() -> None:
    with pytest.raises(ValueError, match=r"score takes several schedules, and was given one\. Give \[schedule\]"):
        dpstride.score(run(), SCHEDULE)


@pytest.mark.parametrize(("typed", "meant"), [("sample", "samples"), ("objectiv", "objective")])
def test_names_of_the_signature_itself_are_near_ones_too(typed: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"optimise has no argument '{typed}'\. Did you mean {meant}\?"):
        dpstride.optimise(DENOISER, IMAGES, **{typed: 3})  # type: ignore[arg-type]


def test_a_mistyped_keyword_is_told_of_the_function_that_was_called() -> None:
    with pytest.raises(TypeError, match=r"bits_per_dim has no argument 'varance'\. Did you mean variance\?"):
        dpstride.bits_per_dim(DENOISER, IMAGES, SCHEDULE, varance="posterior")


def test_missing_arguments_are_python_s_to_tell() -> None:
    with pytest.raises(TypeError, match=r"sample\(\) missing 1 required positional argument: 'schedule'"):
        dpstride.sample(DENOISER)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shape": 8}, r"shape must be the shape of one sample, .* not 8"),
        ({"shape": ("3", 8)}, "of whole numbers, not '3'"),
        ({"clip": ("low", "high")}, r"clip must be None or \(low, high\)"),
        ({"device": "gpu"}, "device must name a torch device, such as 'cpu', .* not 'gpu'"),
        ({"device": 3.5}, r"device must name a torch device, .* not 3\.5"),
    ],
)
def test_a_denoiser_refuses_what_is_no_shape_range_or_device(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        denoiser_of(**options)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the device is there")
@pytest.mark.parametrize("move", [lambda: denoiser_of(device="cuda"), lambda: DENOISER.to("cuda")])
def test_a_device_that_is_not_there_is_refused_with_what_to_do(move: Call) -> None:
    words = r"device='cuda' cannot be used here: (this PyTorch, .*, was built without CUDA|PyTorch finds no GPU).* device='cpu'"
    with pytest.raises(ValueError, match=words):
        move()


# --- keywords by way of a record ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verb", "record", "names"),
    [
        (dpstride.estimate, Execution, WorkOnData.__annotations__),
        (dpstride.estimate_adaptively, Execution, WorkOnData.__annotations__),
        (dpstride.optimise, Execution, WorkOnData.__annotations__),
        (dpstride.estimate_masked, Execution, Work.__annotations__),
        (dpstride.find, Request, Request.__annotations__),
        (dpstride.tune, Wish, Wish.__annotations__),
        (dpstride.sample_masked, Revealing, Revealing.__annotations__),
        (dpstride.estimate_trajectory, TableSizes, TableSizes.__annotations__),
    ],
)
def test_a_signature_has_every_keyword_with_what_is_taken_without_it(
    verb: Any, record: type, names: Iterable[str]
) -> None:
    shown = inspect.signature(verb).parameters
    assert not any(each.kind is each.VAR_KEYWORD for each in shown.values())
    record_of_nothing = record()
    for name in names:
        assert shown[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert shown[name].default == getattr(record_of_nothing, name)
        assert isinstance(shown[name].annotation, str)  # as the functions' own are


@pytest.mark.parametrize("verb", [dpstride.sample, dpstride.bits_per_dim])
def test_the_schedules_own_choice_is_taken_where_a_keyword_is_left_out(verb: Any) -> None:
    assert inspect.signature(verb).parameters["variance"].default is None


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (dpstride.estimate, "estimate has no argument 'batch_sise'. Did you mean batch_size?"),
        (dpstride.estimate_adaptively, "estimate_adaptively has no argument 'batch_sise'. Did you mean batch_size?"),
        (dpstride.optimise, "optimise has no argument 'batch_sise'. Did you mean batch_size?"),
        (dpstride.estimate_masked, "estimate_masked has no argument 'batch_sise'. Did you mean batch_size?"),
    ],
)
def test_a_misspelt_keyword_is_refused_before_any_work(verb: Any, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        verb(DENOISER, IMAGES, batch_sise=2)
