"""What a model is: an edited one is refused wherever work goes on or is reused, whatever was edited; another name is not."""

from __future__ import annotations

import copy
import functools
import importlib
import json
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from dpstride import Denoiser, ForwardProcess, Statistics, estimate, estimate_trajectory, even_stride
from dpstride.adaptive.loop import estimate_adaptively
from dpstride.cli import _run
from dpstride.evaluate.features.extractor import FeatureExtractor
from dpstride.evaluate.sampling import Chain
from dpstride.evaluate.stream import sample_features, sample_stream
from dpstride.runs import progress
from dpstride.runs.behaviour import Behaviour, sketch
from dpstride.runs.identity import OtherWorkError, check_identity
from dpstride.runs.storage import read_arrays, write_arrays
from dpstride.statistics.artefact import read_safetensors, write_safetensors
from dpstride.statistics.probes import EVALUATIONS
from dpstride.statistics.spots import SPOTS, Kept
from mixture_model import write_mixture
from small_network import assert_identical

pytestmark = pytest.mark.attack("edited models on resume, reuse and in workers")

T, SHAPE = 12, (3, 4)
PROCESS = ForwardProcess.linear(T)
IMAGES = torch.randint(0, 256, (9, *SHAPE), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
OTHERWISE = (
    r"holds work of a model that behaves otherwise: on the same inputs the network's output differs by \S+ of its size at "
    r"t = \d+, where rounding may reach \S+ \(float\d+\), though its weights are the same: its code, its attributes or its "
    r"settings have changed\. Undo that to go on\. (Give another output|Estimate without reuse)"
)


class Net(nn.Module):
    """Three layers that a test may edit in any way."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inward, self.outward = nn.Linear(4, 16), nn.Linear(16, 4)
        self.activation: nn.Module = nn.SiLU()
        self.gain = 1.0
        self.register_buffer("table", torch.ones(4), persistent=False)
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        hidden = self.activation(self.inward(x) + time[:, None, None] / T)
        return self.gain * self.outward(hidden) * self.table


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


def edited(change: Callable[[Net], object]) -> Net:
    net = Net()
    change(net)
    return net


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


def denoiser_of(network: Any, **options: Any) -> Denoiser:
    return Denoiser(network, PROCESS, **({"predicts": "x0", "clip": None, "shape": SHAPE} | options))


def run(denoiser: Denoiser, **options: Any) -> Statistics:
    return estimate(denoiser, IMAGES, progress=False, **({"batch_size": 4} | options))


class StopError(Exception):
    pass


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Callable[[Denoiser, Path], None]:
    """Begins an estimate and stops it after its first unit."""

    def begin(denoiser: Denoiser, path: Path) -> None:
        write = progress.Progress.write

        def writes(self: progress.Progress, key: str, arrays: Any) -> None:
            write(self, key, arrays)
            raise StopError

        with monkeypatch.context() as patch:
            patch.setattr(progress.Progress, "write", writes)
            with pytest.raises(StopError):
                run(denoiser, checkpoint=path)
        assert path.with_name(path.name + ".progress").is_dir()

    return begin


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


def test_trajectories_of_an_edited_model_are_refused(tmp_path: Path) -> None:
    found = estimate_trajectory(image_denoiser(0.9), 3, progress=False, checkpoint=tmp_path / "t")
    with pytest.raises(OtherWorkError, match=OTHERWISE):
        estimate_trajectory(image_denoiser(0.91), 3, progress=False, checkpoint=tmp_path / "t")
    named = image_denoiser(0.9)
    named.name = "another name"
    again = estimate_trajectory(named, 3, progress=False, checkpoint=tmp_path / "t")
    np.testing.assert_array_equal(again.deviation, found.deviation)
    assert again.behaviour == found.behaviour


# --- files without a record, and records -----------------------------------------------------------------------------------


def test_statistics_without_a_record_are_read_but_not_gone_on_from(
    tmp_path: Path, stopped: Callable[[Denoiser, Path], None]
) -> None:
    """As version 0.1.0 wrote them."""
    path = tmp_path / "old"
    run(denoiser_of(Net()), checkpoint=path)
    tensors, metadata = read_safetensors(path)
    del metadata["behaviour"]
    write_safetensors(path, tensors, metadata)
    old = Statistics.load(path)
    assert old.behaviour is None
    message = r"does not say how its model behaved .*could be mixed in\. "
    with pytest.raises(OtherWorkError, match=message + "Give another output, or remove it"):
        run(denoiser_of(Net()), checkpoint=path)
    with pytest.raises(OtherWorkError, match=message + "Estimate without reuse"):
        run(denoiser_of(Net()), reuse=old)
    stopped(denoiser_of(Net()), tmp_path / "begun")
    (shard,) = (tmp_path / "begun.progress").glob("*.safetensors")
    arrays, header = read_arrays(shard)
    identity = json.loads(header["identity"])
    del identity["behaviour"], header["sha256"]
    write_arrays(shard, arrays, header | {"identity": json.dumps(identity)})
    with pytest.raises(OtherWorkError, match=message):
        run(denoiser_of(Net()), checkpoint=tmp_path / "begun")


def record(**changes: Any) -> Behaviour:
    known = run(denoiser_of(Net())).behaviour
    assert known is not None
    return Behaviour.from_dict(known.to_dict() | changes)


def test_another_device_may_round_more_and_is_named() -> None:
    here = record()
    moved = [[1.001 * number for number in each] for each in here.sketches]
    far = [[1.05 * number for number in each] for each in here.sketches]
    assert "differs by 0.001 of its size" in (here.difference(record(sketches=moved)) or "")
    assert here.difference(record(sketches=moved, device="cuda Some Card")) is None
    assert here.difference(record(sketches=moved, torch="99.0")) is None
    told = here.difference(record(sketches=far, device="cuda Some Card")) or ""
    assert "0.05 of its size" in told
    assert "may reach 0.01 (float32, on cuda Some Card with torch" in told
    assert here.difference(record(sketches=moved, rounding=3e-4)) is None  # measured: four times that is allowed


def test_rounding_cannot_add_up_over_runs() -> None:
    """Each run is compared with the first one's record, which goes on."""
    first = {"behaviour": record().to_dict()}
    steps = [{"behaviour": record(sketches=[[k * n for n in each] for each in record().sketches]).to_dict()}
             for k in (1.000006, 1.000012)]  # fmt: skip
    kept = check_identity("f", first, steps[0])
    assert kept == first
    with pytest.raises(OtherWorkError, match="behaves otherwise"):
        check_identity("f", kept, steps[1])


@pytest.mark.parametrize(
    "change",
    [
        {"sizes": [1.0]},
        {"t": "1"},
        {"rounding": float("nan")},
        {"precision": "int8"},
        {"sketches": [[0.0]] * 4},
        {"x": 1},
    ],
)
def test_a_damaged_record_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"record of a model's behaviour|, not"):
        record(**change)


@pytest.mark.parametrize("size", [1, 63, 64, 1000])
def test_a_sketch_keeps_distances(size: int) -> None:
    """Exactly up to 64 numbers; beyond, of 64 sums, to a fifth in the mean over pairs."""
    rng = np.random.default_rng(size)
    ratios = []
    for _ in range(40):
        a, b = rng.standard_normal((2, size))
        ratios.append(float(np.linalg.norm(np.subtract(sketch(a), sketch(b))) / np.linalg.norm(a - b)))
    assert np.mean(ratios) == pytest.approx(1.0, rel=1e-12 if size <= 64 else 0.05)
    assert min(ratios) > 0.6


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
    with pytest.raises(ValueError, match=r"depends on the other samples in its batch|another output in a batch of two"):
        estimate(one, (images, labels), progress=False)
    each = Denoiser(lambda x, time, y: 0.5 * x + 0.05 * y.reshape(-1, 1, 1), PROCESS, predicts="x0")
    estimate(each, (images, labels), progress=False)


# --- edits that spare the probes ------------------------------------------------------------------------------------------

PROBED = (1, 4, 8, 12)  # grid indices of the probes on this grid
ELSEWHERE = (
    r"holds work of a model that behaves otherwise: computed again, at t = (2|3|5|6|7|9|10|11) the (error of x0_hat|sum of "
    r"phi) on sample \d is \S+ and not \S+, where rounding may change it by \S+ \(float\d+\), though its weights and its "
    r"outputs on the probes are the same: .* have changed\. Undo that to go on\. (Give another output|Estimate without reuse)"
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
    kept = Kept.of_statistics(run(denoiser_of(Net())))
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

    with pytest.raises(OtherWorkError, match="behaves otherwise: computed again, at t = 2"):
        again_and_again()
