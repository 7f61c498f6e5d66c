"""Streams of features: the same numbers as all at once, whatever stops them, and no step of the network made twice."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpstride import Denoiser, ForwardProcess, even_stride, sample
from dpstride.evaluate import stream, unit_store
from dpstride.evaluate.features.extractor import FeatureExtractor, to_levels
from dpstride.evaluate.sampling import Chain
from dpstride.evaluate.stream import (
    Conditioning,
    Pictures,
    image_features,
    load_features,
    sample_features,
    sample_stream,
)
from dpstride.runs import progress
from dpstride.runs.identity import OtherWorkError
from dpstride.statistics.probes import PASSES

PROCESS = ForwardProcess.linear(20)
K, SHAPE = 6, (1, 3, 3)


class Network:
    """Something that is not linear; stops at its n-th call after the probes by an exception or by a kill."""

    def __init__(self, stop_at: int | None = None, how: str = "raise") -> None:
        self.probes, self.calls, self.samples, self.stop_at, self.how = PASSES, 0, 0, stop_at, how

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        if self.probes:
            self.probes -= 1
            return torch.tanh(x) * 0.9
        if self.calls == self.stop_at:
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            raise KeyboardInterrupt
        self.calls += 1
        self.samples += len(x)
        return torch.tanh(x) * 0.9


def features_of(images: Tensor) -> Tensor:
    x = images.double().flatten(1)
    return torch.stack([x.mean(1), x.std(1), x[:, 0]], dim=1)


EXTRACTOR = FeatureExtractor("three", "Fréchet distance, three features", 3, "1", features_of)


def chain(network: Network, **options: Any) -> Chain:
    return Chain.along(
        Denoiser(network, PROCESS, predicts="x0", shape=SHAPE, name="tanh"), even_stride(PROCESS, K), **options
    )


def expected(n: int, seed: int = 0) -> Tensor:
    denoiser = Denoiser(Network(), PROCESS, predicts="x0", shape=SHAPE)
    return to_levels(sample(denoiser, even_stride(PROCESS, K), n=n, seed=seed))


def test_features_are_those_of_the_samples(tmp_path: Path) -> None:
    seen: list[int] = []
    found = sample_features(
        chain(Network()), EXTRACTOR, 23, tmp_path / "f", pictures=Pictures(keep=10), batch_size=4, update=seen.append
    )
    assert found is not None
    images = expected(23)
    np.testing.assert_array_equal(found.features, features_of(images).float())
    np.testing.assert_array_equal(found.images, images[:10])
    assert sum(seen) == 23 * K
    loaded = load_features(tmp_path / "f")
    np.testing.assert_array_equal(loaded.features, found.features)
    np.testing.assert_array_equal(loaded.images, found.images)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f"]


@pytest.mark.parametrize("batch_size", [4, 7, 64])
def test_an_interrupted_stream_goes_on_where_it_stopped(tmp_path: Path, batch_size: int) -> None:
    stopped = Network(stop_at=2 * K + 3)  # in the third unit of four
    with pytest.raises(KeyboardInterrupt):
        sample_features(chain(stopped), EXTRACTOR, 23, tmp_path / "f", batch_size=4)
    again = Network()
    found = sample_features(chain(again), EXTRACTOR, 23, tmp_path / "f", batch_size=batch_size)
    assert found is not None
    np.testing.assert_array_equal(found.features, features_of(expected(23)).float())
    assert again.samples == (23 - 8) * K
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f"]


@pytest.mark.parametrize("stop_at", range(1, 3 * K, 2))
def test_a_kill_loses_no_more_than_the_step_it_comes_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    """With nothing but the time between two writings changed, to none."""
    monkeypatch.setattr(stream, "STATE_SECONDS", -1.0)
    monkeypatch.setattr(progress, "SECONDS", -1.0)
    child = os.fork()
    if child == 0:
        sample_features(chain(Network(stop_at, "kill")), EXTRACTOR, 9, tmp_path / "f", batch_size=3)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    again = Network()
    seen: list[int] = []
    found = sample_features(chain(again), EXTRACTOR, 9, tmp_path / "f", batch_size=3, update=seen.append)
    assert found is not None
    np.testing.assert_array_equal(found.features, features_of(expected(9)).float())
    assert again.calls == 3 * K - stop_at
    assert sum(seen) == (3 - stop_at // K) * 3 * K
    assert sorted(path.name for path in tmp_path.iterdir()) == ["f"]


class Meeting(Network):
    """Two threads are in it at a time; at one call, one of them stops."""

    stateless = True

    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__(stop_at)
        self.lock, self.barrier = threading.Lock(), threading.Barrier(2)

    def __call__(self, x: Tensor, time: Tensor) -> Tensor:
        if not self.probes:
            with contextlib.suppress(threading.BrokenBarrierError):
                self.barrier.wait(timeout=1.0)  # alone, one goes on after a second
        with self.lock:
            try:
                return super().__call__(x, time)
            except KeyboardInterrupt:
                self.stop_at = None  # for one of them only
                raise


@pytest.fixture
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_units_are_walked_in_threads_and_what_stops_one_stops_all(tmp_path: Path) -> None:
    together = Meeting()
    found = sample_features(chain(together), EXTRACTOR, 16, tmp_path / "f", batch_size=4)
    assert found is not None
    assert not together.barrier.broken  # nobody ever waited in vain: two were always there
    np.testing.assert_array_equal(found.features, features_of(expected(16)).float())

    stopped = Meeting(stop_at=5)  # both are in their third step
    with pytest.raises(KeyboardInterrupt):
        sample_features(chain(stopped), EXTRACTOR, 16, tmp_path / "g", batch_size=4)
    assert stopped.calls < K + 5  # the other thread did not go on to its end
    assert list((tmp_path / "g.progress").glob(unit_store.STATES))  # but wrote down where it was
    again = Network()
    found = sample_features(chain(again), EXTRACTOR, 16, tmp_path / "g", batch_size=4)
    assert found is not None
    np.testing.assert_array_equal(found.features, features_of(expected(16)).float())
    assert again.calls < 4 * K


def test_more_samples_are_the_same_and_more(tmp_path: Path) -> None:
    first = sample_features(chain(Network()), EXTRACTOR, 10, tmp_path / "f", batch_size=4, pictures=Pictures(keep=12))
    more, fewer = Network(), Network()
    found = sample_features(chain(more), EXTRACTOR, 17, tmp_path / "f", batch_size=4, pictures=Pictures(keep=12))
    part = sample_features(chain(fewer), EXTRACTOR, 5, tmp_path / "f", batch_size=4, pictures=Pictures(keep=12))
    assert first is not None
    assert found is not None
    assert part is not None
    np.testing.assert_array_equal(found.features[:10], first.features)
    np.testing.assert_array_equal(found.features, features_of(expected(17)).float())
    np.testing.assert_array_equal(found.images, expected(12))
    np.testing.assert_array_equal(part.features, found.features[:5])
    assert (more.samples, fewer.samples) == (7 * K, 0)


@pytest.mark.parametrize(
    ("change", "named"),
    [({"seed": 1}, "seed"), ({"sampler": "ddim"}, "sampler"), ({"variance": "upper"}, "variance")],
)
def test_other_work_is_refused_by_what_differs(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    sample_features(chain(Network()), EXTRACTOR, 3, tmp_path / "f")
    with pytest.raises(OtherWorkError, match=rf"holds other work: .*{named} \(there"):
        sample_features(chain(Network(), **change), EXTRACTOR, 3, tmp_path / "f")
    other = FeatureExtractor("three", "Fréchet distance, three features", 3, "2", features_of)
    with pytest.raises(OtherWorkError, match=r"extractor\.fingerprint \(there '1', here '2'\)"):
        sample_features(chain(Network()), other, 3, tmp_path / "f")


def test_latents_are_decoded_and_conditioning_follows_its_sample(tmp_path: Path) -> None:
    denoiser = Denoiser(lambda x, time, label: 0.0 * x + label[:, None].to(x), PROCESS, predicts="x0", shape=(4,))
    labels = torch.linspace(-1.0, 1.0, 7)
    found = sample_features(
        Chain.along(denoiser, even_stride(PROCESS, 2)),
        EXTRACTOR,
        7,
        tmp_path / "f",
        batch_size=3,
        conditioning=Conditioning(labels, "labels"),
        pictures=Pictures(decode=lambda x: -x.reshape(-1, 1, 2, 2)),
    )
    assert found is not None
    np.testing.assert_array_equal(found.features[:, 0], to_levels(-labels))
    assert found.images.shape == (7, 1, 2, 2)


def test_real_images_go_the_same_way(tmp_path: Path) -> None:
    images = torch.randint(0, 256, (11, 3, 4, 4), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    found = image_features(images, EXTRACTOR, tmp_path / "f", keep=5, batch_size=4)
    assert found is not None
    np.testing.assert_array_equal(found.features, features_of(images).float())
    np.testing.assert_array_equal(found.images, images[:5])
    with pytest.raises(OtherWorkError, match="images"):
        image_features(images.flip(0), EXTRACTOR, tmp_path / "f", keep=5)


def test_a_damaged_file_is_refused_and_a_damaged_state_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "f").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"not features that dpstride wrote .*Remove it"):
        sample_features(chain(Network()), EXTRACTOR, 3, tmp_path / "f")
    (tmp_path / "f").unlink()
    monkeypatch.setattr(stream, "STATE_SECONDS", -1.0)
    with pytest.raises(KeyboardInterrupt):
        sample_features(chain(Network(stop_at=4)), EXTRACTOR, 3, tmp_path / "f")
    (state,) = (tmp_path / "f.progress").glob(unit_store.STATES)
    content = bytearray(state.read_bytes())
    content[-1] ^= 1
    state.write_bytes(content)
    again = Network()
    found = sample_features(chain(again), EXTRACTOR, 3, tmp_path / "f")
    assert found is not None
    np.testing.assert_array_equal(found.features, features_of(expected(3)).float())
    assert again.calls == K


def test_samples_go_on_after_a_stop_and_are_those_drawn_at_once(tmp_path: Path) -> None:
    written: list[Tensor] = []
    with pytest.raises(KeyboardInterrupt):
        sample_stream(chain(Network(stop_at=2 * K)), 11, tmp_path / "x.npy", written.append, batch_size=4)
    assert not written
    again = Network()
    sample_stream(chain(again), 11, tmp_path / "x.npy", written.append, batch_size=4)
    denoiser = Denoiser(Network(), PROCESS, predicts="x0", shape=SHAPE)
    assert torch.equal(written[0], sample(denoiser, even_stride(PROCESS, K), n=11))
    assert again.samples == 3 * K  # two batches of four were there
    assert not list(tmp_path.iterdir())


def test_samples_of_another_seed_are_not_mixed(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        sample_stream(chain(Network(stop_at=K)), 8, tmp_path / "x.npy", lambda x: None, batch_size=4)
    with pytest.raises(OtherWorkError, match=r"seed \(there 0, here 1\)"):
        sample_stream(chain(Network(), seed=1), 8, tmp_path / "x.npy", lambda x: None, batch_size=4)
