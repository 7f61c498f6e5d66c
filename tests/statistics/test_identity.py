"""What a model is: an edited one is refused wherever work goes on or is reused, whatever was edited; another name is not."""

from __future__ import annotations

import copy
import functools
import importlib
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from edited_models import PROCESS, Net, StopError, T, denoiser_of, edited, run
from torch import Tensor, nn

from dpstride import Denoiser, Statistics, estimate, estimate_trajectory, even_stride
from dpstride.cli import _run
from dpstride.evaluate.features.extractor import FeatureExtractor
from dpstride.evaluate.sampling import Chain
from dpstride.evaluate.stream import image_features, sample_features, sample_stream
from dpstride.runs.identity import OtherWorkError
from dpstride.statistics.probes import EVALUATIONS
from dpstride.statistics.spots import SPOTS
from mixture_model import write_mixture
from small_network import assert_identical

pytestmark = pytest.mark.attack("edited models on resume, reuse and in workers")
OTHERWISE = (
    r"holds work of a model that behaves differently: on the same inputs the network's output differs by \S+ of its size at "
    r"t = \d+, where rounding may reach \S+ \(float\d+\), though its weights are the same: its code, its attributes or its "
    r"settings have changed\. Undo the change to continue\. (Give another output|Estimate without reuse)"
)


class Edited(Net):
    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return super().forward(x, time) + 1e-3


class Slots:
    __slots__ = ("net", "offset")

    def __init__(self, net: nn.Module, offset: float) -> None:
        self.net, self.offset = net, offset

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        return self.net(x, time) + self.offset


class Holder:
    """Holds something, which holds something."""

    def __init__(self, held: Any) -> None:
        self.held = held

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        return self.held(x, time)


CONSTANT = 0.5


def from_constant(x: Tensor, time: Tensor) -> Tensor:
    return CONSTANT * torch.sin(x + time[:, None, None])


def nested(power: float) -> Callable[[Tensor, Tensor], Tensor]:
    def outer(x: Tensor, time: Tensor) -> Tensor:
        def helper(y: Tensor) -> Tensor:
            def innermost(z: Tensor) -> Tensor:
                return torch.tanh(z) * power

            return innermost(y)

        return helper(x + time[:, None, None])

    return outer


def scaled(net: nn.Module, x: Tensor, time: Tensor, scale: float = 1.0) -> Tensor:
    return scale * net(x, time)


def imported(value: float) -> Callable[[Tensor, Tensor], Tensor]:
    module = types.ModuleType("settings_of_a_model")
    module.value = value  # type: ignore[attr-defined]
    return lambda x, time: module.value * torch.sin(x + time[:, None, None])


def by_code(source: str) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of the same name, compiled from other text, with a string and a set in its constants."""
    names: dict[str, Any] = {"torch": torch}
    exec(textwrap.dedent(source), names)
    return names["network"]  # type: ignore[no-any-return]


def deep(offset: float) -> Holder:
    holder = Holder(Slots(Net(), offset))
    for _ in range(9):
        holder = Holder(holder)
    return holder


# The model before and after somebody has edited it; its weights are the same.
EDITS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "forward": (Net, Edited),
    "activation": (Net, lambda: edited(lambda net: setattr(net, "activation", nn.GELU()))),
    "attribute": (Net, lambda: edited(lambda net: setattr(net, "gain", 1.0001))),
    "patched forward": (Net, lambda: edited(lambda net: setattr(net, "forward", lambda x, time: 0.9 * x))),
    "hook": (Net, lambda: edited(lambda net: net.register_forward_hook(lambda module, given, out: 0.99 * out))),
    "slots": (lambda: Slots(Net(), 0.0), lambda: Slots(Net(), 0.01)),
    "closure": (lambda: nested(1.0), lambda: nested(1.001)),
    "partial": (lambda: functools.partial(scaled, Net()), lambda: functools.partial(scaled, Net(), scale=1.01)),
    "module's value": (lambda: imported(0.5), lambda: imported(0.501)),
    "deep": (lambda: deep(0.0), lambda: deep(0.01)),
    "method": (lambda: Slots(Net(), 0.0).__call__, lambda: Slots(Net(), 0.02).__call__),
    "another class": (lambda: Holder(Net()), lambda: Holder(lambda x, time, net=Net(): net(x.clamp(-1, 1), time))),  # noqa: B008
    "code": (
        lambda: by_code("def network(x, time):\n    return x * (0.5 if 'a' in {'a', 'b'} else 1)"),
        lambda: by_code("def network(x, time):\n    return x * (0.6 if 'a' in {'a', 'b'} else 1)"),
    ),
}


# --- an edited model ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_model_is_refused_on_resume_reuse_and_return(
    edit: str, tmp_path: Path, stopped: Callable[[Denoiser, Path], None]
) -> None:
    before, after = EDITS[edit]
    begun, done = tmp_path / "begun", tmp_path / "done"
    stopped(denoiser_of(before()), begun)
    finished = run(denoiser_of(before()), checkpoint=done)
    for options in ({"checkpoint": begun}, {"checkpoint": done}, {"reuse": finished, "indices": [1, 5, T]}):
        with pytest.raises(OtherWorkError, match=OTHERWISE):
            run(denoiser_of(after()), **options)
    # The unedited model, made again, goes on.
    assert_identical(run(denoiser_of(before()), checkpoint=begun), finished)
    assert_identical(run(denoiser_of(before()), checkpoint=done), finished)
    assert_identical(run(denoiser_of(before()), reuse=finished), finished)


def test_a_constant_of_the_module_is_part_of_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(denoiser_of(from_constant), checkpoint=tmp_path / "c")
    monkeypatch.setattr(sys.modules[__name__], "CONSTANT", 0.51)
    with pytest.raises(OtherWorkError, match=OTHERWISE):
        run(denoiser_of(from_constant), checkpoint=tmp_path / "c")


def test_the_same_object_is_looked_at_again(tmp_path: Path) -> None:
    """In a notebook a model is edited in place, and the same Denoiser goes on."""
    net = Net()
    denoiser = denoiser_of(net)
    run(denoiser, checkpoint=tmp_path / "c")
    net.gain = 1.5
    with pytest.raises(OtherWorkError, match=OTHERWISE):
        run(denoiser, checkpoint=tmp_path / "c")


@pytest.mark.parametrize(
    "change",
    [
        lambda net: net.unused.data.add_(1e-6),
        lambda net: net.table.add_(1e-6),
        lambda net: net.outward.bias.data.add_(1e-7),
    ],
    ids=["a weight that does nothing", "a buffer that is not saved", "a change too small for the probes"],
)
def test_changed_weights_are_refused_even_where_outputs_are_the_same(change: Callable[[Net], object]) -> None:
    known = run(denoiser_of(Net()))
    with pytest.raises(
        OtherWorkError, match=r"reuse holds other work: model\.fingerprint .* differ\. Estimate without reuse"
    ):
        run(denoiser_of(edited(change)), reuse=known)


@pytest.mark.parametrize("how", ["dtype", "autocast around the call", "autocast of the denoiser"])
def test_another_precision_is_refused_by_its_name(how: str, tmp_path: Path) -> None:
    def network(x: Tensor, time: Tensor, weight: Tensor = torch.eye(4)) -> Tensor:  # noqa: B008
        return torch.sin(x @ weight.to(x.dtype) + time[:, None, None].to(x.dtype))

    model = denoiser_of(network, dtype=torch.float32)
    known, around, message = run(model), nullcontext(), r"autocast \(there None, here 'torch\.bfloat16'\)"
    match how:
        case "dtype":
            model, message = denoiser_of(network, dtype=torch.bfloat16), r"dtype \(there 'float32', here 'bfloat16'\)"
        case "autocast around the call":
            around, message = torch.autocast("cpu", torch.bfloat16), r"autocast \(there None, here 'bfloat16'\)"
        case "autocast of the denoiser":
            model = model.faster(autocast=torch.bfloat16)
    with around, pytest.raises(OtherWorkError, match=message):  # type: ignore[attr-defined]
        run(model, reuse=known)


def test_autocast_around_the_call_holds_for_all_of_the_work() -> None:
    """Threads do not inherit it, so there are none."""
    net = Net()
    net.stateless = True  # type: ignore[assignment]
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with torch.autocast("cpu", torch.bfloat16):
            assert denoiser_of(net).at_once == 1
            found = run(denoiser_of(net))
        assert denoiser_of(net).at_once == 2
        expected = run(denoiser_of(net).faster(autocast=torch.bfloat16))
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_allclose(found.squared_error, expected.squared_error, rtol=1e-12)


# --- the same model -----------------------------------------------------------------------------------------------------


class Caching:
    """Makes tensors on its first call and notes what it saw: none of that changes an output."""

    def __init__(self) -> None:
        self.net, self.seen = Net(), []  # type: ignore[var-annotated]
        self.cache: dict[str, Tensor] = {}

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        self.seen.append(len(x))
        scale = self.cache.setdefault("scale", torch.full((4,), 2.0))
        return scale * self.net(x, time)


def test_a_network_with_caches_and_counts_is_the_same_before_and_after(
    tmp_path: Path, stopped: Callable[[Denoiser, Path], None]
) -> None:
    denoiser = denoiser_of(Caching())
    stopped(denoiser, tmp_path / "c")
    found = run(denoiser, checkpoint=tmp_path / "c")
    assert_identical(run(denoiser_of(Caching()), checkpoint=tmp_path / "c"), found)


@pytest.mark.parametrize("sizes", [(4, 1), (1, 4), (64, 3)])
def test_another_batch_size_or_number_of_threads_is_the_same_model(
    sizes: tuple[int, int], tmp_path: Path, stopped: Callable[[Denoiser, Path], None]
) -> None:
    denoiser = denoiser_of(Net())
    known = run(denoiser, batch_size=sizes[0])
    threads = torch.get_num_threads()
    torch.set_num_threads(3 - threads if threads < 3 else 1)
    try:
        run(denoiser_of(copy.deepcopy(denoiser.network)), batch_size=sizes[1], reuse=known)
    finally:
        torch.set_num_threads(threads)


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A model in a module of its own, as a user has it, and its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_mixture(tmp_path, "my_mixture", T=20, samples=24)
    yield importlib.import_module("my_mixture")
    del sys.modules["my_mixture"]


def test_statistics_of_find_are_reused_in_python_and_the_other_way_round(written: Any, tmp_path: Path) -> None:
    from dpstride.finding.inputs import Asked, load_model, split

    words = ["my_mixture:model", "data.npy", "-q", "--samples", "12", "--heldout-samples", "12"]
    assert _run(["find", *words, "--every-step", "-o", "out"]) == 0
    choosing, _ = split(Asked("data.npy", None, 12, 12), load_model("my_mixture:model"), 0)
    found = Statistics.load("out/statistics.safetensors")
    denoiser = written.model()
    denoiser.name = "what I call it"
    calls: list[int] = []
    network = denoiser.network
    denoiser.network = denoiser._run = lambda x, time: (calls.append(len(x)), network(x, time))[1]
    again = estimate(denoiser, choosing, data_range=choosing.data_range, progress=False, reuse=found)
    assert sum(calls) == EVALUATIONS + SPOTS  # nothing but probes and spot checks
    assert again.model["name"] == "what I call it" != found.model["name"]
    np.testing.assert_array_equal(again.squared_error, found.squared_error)
    # What Python begins under any name, the command finishes.
    named = written.model()
    named.name = "mine"
    data = np.load("data.npy")
    few = estimate(named, data, data_range=choosing.data_range, progress=False, indices=[1, 9, 20], checkpoint="s")
    assert _run(["estimate", "my_mixture:model", "data.npy", "-o", "s", "-q"]) == 0
    whole = Statistics.load("s")
    assert whole.evaluated[1:].all()
    np.testing.assert_array_equal(whole.squared_error[[1, 9, 20]], few.squared_error[[1, 9, 20]])


# --- other work that goes on ----------------------------------------------------------------------------------------------

EXTRACTOR = FeatureExtractor("two", "two features", 2, "1", lambda images: images.flatten(1)[:, :2].double())


def image_denoiser(gain: float) -> Denoiser:
    return Denoiser(lambda x, time: gain * torch.tanh(x), PROCESS, predicts="x0", shape=(1, 3, 3))


def test_samples_and_features_of_an_edited_model_are_not_mixed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = (Chain.along(image_denoiser(gain), even_stride(PROCESS, 4)) for gain in (0.9, 0.91))
    sample_features(before, EXTRACTOR, 3, tmp_path / "f", batch_size=2)
    with pytest.raises(OtherWorkError, match=OTHERWISE):
        sample_features(after, EXTRACTOR, 5, tmp_path / "f", batch_size=2)
    assert sample_features(before, EXTRACTOR, 5, tmp_path / "f", batch_size=2) is not None

    def fails(x: Tensor) -> None:
        raise StopError

    with pytest.raises(StopError):
        sample_stream(before, 4, tmp_path / "x.npy", fails, batch_size=2)
    with pytest.raises(OtherWorkError, match=OTHERWISE):
        sample_stream(after, 4, tmp_path / "x.npy", fails, batch_size=2)


def test_real_features_of_an_edited_extractor_are_not_taken(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (12, 1, 3, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    edited = replace(EXTRACTOR, function=lambda images: images.flatten(1)[:, 1:3].double())
    image_features(images, EXTRACTOR, tmp_path / "real")
    with pytest.raises(OtherWorkError, match=r"feature extractor that behaves differently"):
        image_features(images, edited, tmp_path / "real")
    assert image_features(images, EXTRACTOR, tmp_path / "real") is not None


def test_trajectories_of_an_edited_model_are_refused(tmp_path: Path) -> None:
    found = estimate_trajectory(image_denoiser(0.9), 3, progress=False, checkpoint=tmp_path / "t")
    with pytest.raises(OtherWorkError, match=OTHERWISE):
        estimate_trajectory(image_denoiser(0.91), 3, progress=False, checkpoint=tmp_path / "t")
    named = image_denoiser(0.9)
    named.name = "another name"
    again = estimate_trajectory(named, 3, progress=False, checkpoint=tmp_path / "t")
    np.testing.assert_array_equal(again.deviation, found.deviation)
    assert again.behaviour == found.behaviour
