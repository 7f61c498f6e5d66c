"""Feature extractors: the FID's network by its layout and its definition, and the contract that all of them keep."""

from __future__ import annotations

import hashlib
import math
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from dpstride import frechet_distance, zoo
from dpstride.evaluate.features import inception
from dpstride.evaluate.features.extractor import FeatureExtractor, digest_of, to_levels
from dpstride.evaluate.features.inception import InceptionV3, inception_features, prepare
from dpstride.reading.checkpoints import read_checkpoint
from dpstride.zoo.classifier import fashion_features, folder, load_classifier
from train_classifier import NormalisedClassifier, accuracy, train_classifier


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file of random weights in the layout of the usual one."""
    generator = torch.Generator().manual_seed(0)
    with torch.device("meta"):
        layout = InceptionV3().state_dict() | {"fc.weight": torch.zeros(1008, 2048), "fc.bias": torch.zeros(1008)}
    state = {}
    for name, value in layout.items():
        spread = 0.01 if value.ndim < 2 else math.sqrt(2.0 / value[0].numel())  # keeps the scale from layer to layer
        one = name.endswith(("running_var", "bn.weight"))
        state[name] = spread * torch.randn(value.shape, generator=generator) + (1.0 if one else 0.0)
        state[name] = state[name].to(value.dtype)
    path = tmp_path_factory.mktemp("weights") / "random.pth"
    torch.save(state, path, _use_new_zipfile_serialization=False)  # as old as the usual file
    yield path
    path.unlink()


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


# --- Inception --------------------------------------------------------------------------------------------------------------


def test_the_layout_is_that_of_the_usual_file() -> None:
    """Names and counts that others publish for this network, not read from this code.

    Keras counts 21,802,784 numbers in Inception-v3 without its classifier, with three per normalised channel (no scale);
    the usual file has four and the batch counters, in 566 entries with the classifier's two, and 95,628,359 bytes.
    """
    with torch.device("meta"):
        state = InceptionV3().state_dict()
    channels = sum(value.numel() for name, value in state.items() if name.endswith("bn.weight"))
    numbers = sum(value.numel() for name, value in state.items() if not name.endswith("num_batches_tracked"))
    assert numbers - channels == 21_802_784
    assert len(state) + 2 == 566
    names_and_headers = 95_628_359 - 4 * (numbers + 2049 * 1008)
    assert 0 < names_and_headers < 566 * 256
    shapes = {
        "Conv2d_1a_3x3.conv.weight": (32, 3, 3, 3),
        "Conv2d_4a_3x3.bn.running_var": (192,),
        "Mixed_5b.branch_pool.conv.weight": (32, 192, 1, 1),
        "Mixed_5d.branch3x3dbl_3.conv.weight": (96, 96, 3, 3),
        "Mixed_6a.branch3x3.conv.weight": (384, 288, 3, 3),
        "Mixed_6c.branch7x7dbl_2.conv.weight": (160, 160, 7, 1),
        "Mixed_6e.branch7x7_2.conv.weight": (192, 192, 1, 7),
        "Mixed_7a.branch7x7x3_4.conv.weight": (192, 192, 3, 3),
        "Mixed_7b.branch3x3_2a.conv.weight": (384, 384, 1, 3),
        "Mixed_7c.branch3x3dbl_3b.conv.weight": (384, 384, 3, 1),
        "Mixed_7c.branch_pool.conv.weight": (192, 2048, 1, 1),
    }
    assert {name: tuple(state[name].shape) for name in shapes} == shapes


@pytest.mark.parametrize(("height", "width"), [(28, 28), (5, 301), (299, 299), (1, 2)])
def test_images_are_resized_pixel_by_pixel_as_tensorflow_1_does(height: int, width: int) -> None:
    images = torch.randint(0, 256, (1, 3, height, width), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    found = prepare(images)
    assert found.shape == (1, 3, 299, 299)
    pixels = images[0, 1].double().numpy()
    for i, j in [(0, 0), (1, 7), (150, 41), (298, 298), (297, 3), (12, 280)]:
        y, x = i * height / 299, j * width / 299
        top, left = math.floor(y), math.floor(x)
        below, right = min(top + 1, height - 1), min(left + 1, width - 1)
        upper = pixels[top, left] + (pixels[top, right] - pixels[top, left]) * (x - left)
        lower = pixels[below, left] + (pixels[below, right] - pixels[below, left]) * (x - left)
        value = upper + (lower - upper) * (y - top)
        assert float(found[0, 1, i, j]) == pytest.approx((value - 128.0) / 128.0, abs=1e-5)


def test_pools_follow_the_graph_and_not_the_published_network() -> None:
    """At borders averages are over the pixels that are there, and the last block takes a maximum."""
    ramp = torch.arange(25.0).reshape(1, 1, 5, 5)
    corner = float(inception._pool(ramp, "average")[0, 0, 0, 0])
    assert corner == pytest.approx((0 + 1 + 5 + 6) / 4)
    assert float(inception._pool(ramp, "maximum")[0, 0, 0, 0]) == 6.0
    pools = {name: [pool for pool, _, _ in branches if pool] for name, branches in inception.BLOCKS.items()}
    assert pools["Mixed_7b"] == ["average"]
    assert pools["Mixed_7c"] == ["maximum"]


def test_a_block_joins_its_branches_as_convolutions_by_hand() -> None:
    """The block with forks, from its own weights and torch's functions alone."""
    torch.manual_seed(1)
    block = inception._Block(1280, inception.BLOCKS["Mixed_7b"]).eval()
    x = torch.randn(1, 1280, 3, 3)
    state = block.state_dict()

    def unit(y: Tensor, name: str) -> Tensor:
        kernel = state[f"{name}.conv.weight"]
        y = torch.nn.functional.conv2d(y, kernel, padding=(kernel.shape[2] // 2, kernel.shape[3] // 2))
        mean, var = state[f"{name}.bn.running_mean"], state[f"{name}.bn.running_var"]
        scale, shift = state[f"{name}.bn.weight"], state[f"{name}.bn.bias"]
        normal = (y - mean[:, None, None]) / (var[:, None, None] + 0.001).sqrt()
        return (normal * scale[:, None, None] + shift[:, None, None]).clamp(min=0.0)

    with torch.no_grad():
        straight, double = unit(x, "branch3x3_1"), unit(unit(x, "branch3x3dbl_1"), "branch3x3dbl_2")
        window = torch.nn.functional.pad(x, (1, 1, 1, 1)).unfold(2, 3, 1).unfold(3, 3, 1).sum(dim=(4, 5))
        there = torch.nn.functional.pad(torch.ones(3, 3), (1, 1, 1, 1)).unfold(0, 3, 1).unfold(1, 3, 1).sum(dim=(2, 3))
        expected = torch.cat(
            [
                unit(x, "branch1x1"),
                unit(straight, "branch3x3_2a"),
                unit(straight, "branch3x3_2b"),
                unit(double, "branch3x3dbl_3a"),
                unit(double, "branch3x3dbl_3b"),
                unit(window / there, "branch_pool"),
            ],
            dim=1,
        )
        torch.testing.assert_close(block(x), expected, rtol=1e-4, atol=1e-5)


def test_features_are_2048_per_image_whatever_the_batch_and_grey_is_repeated(weights: Path) -> None:
    extractor = inception_features(weights)
    assert "not the FID's" in extractor.distance
    images = torch.randint(0, 256, (2, 1, 28, 28), generator=torch.Generator().manual_seed(2), dtype=torch.uint8)
    found = extractor(images)
    assert found.shape == (2, 2048)
    assert found.dtype == np.float32
    assert found.std(axis=0).max() > 0.0
    np.testing.assert_allclose(extractor(images.expand(-1, 3, -1, -1), batch_size=1), found, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="grey or RGB images, not images of 4 channels"):
        extractor(torch.zeros(1, 4, 8, 8, dtype=torch.uint8))


def in_modules(state: dict[str, Tensor]) -> torch.nn.Module:
    """A module of modules that has these tensors as buffers, by their dotted names."""
    root = torch.nn.Sequential()
    for name, value in state.items():
        *path, last = name.split(".")
        module: torch.nn.Module = root
        for part in path:
            if not hasattr(module, part):
                module.add_module(part, torch.nn.Sequential())
            module = getattr(module, part)
        module.register_buffer(last, value)
    return root


def as_torchscript(state: dict[str, Tensor], path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit, whose archives are still about
        torch.jit.script(in_modules(state)).save(path)


def as_nvidia(state: dict[str, Tensor], path: Path) -> None:
    """Names of TensorFlow's graph, and no scale, as in the archive of StyleGAN's metrics."""
    parts = {"conv.weight": "weight", "bn.bias": "beta", "bn.running_mean": "mean", "bn.running_var": "var"}
    renamed = {}
    for ours, theirs in inception._graph_names().items():
        renamed |= {f"layers.{theirs}.{new}": state[f"{ours}.{old}"] for old, new in parts.items()}
    as_torchscript({**renamed, "output.weight": torch.zeros(1008, 2048)}, path)


CONTAINERS: dict[str, Callable[[dict[str, Tensor], Path], object]] = {
    "usual.pth": lambda state, path: torch.save(state, path, _use_new_zipfile_serialization=False),
    "backwards.pt": lambda state, path: torch.save(dict(reversed(state.items())), path),
    "plain.safetensors": save_file,
    "uncounted.safetensors": lambda state, path: save_file(
        {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}, path
    ),
    "counted.safetensors": lambda state, path: save_file(
        {name: value + 7 if name.endswith("num_batches_tracked") else value for name, value in state.items()}, path
    ),
    "bare.safetensors": lambda state, path: save_file(
        {name: value for name, value in state.items() if not name.startswith("fc.")}, path
    ),
    "double.safetensors": lambda state, path: save_file(
        {name: value.double() if value.is_floating_point() else value for name, value in state.items()}, path
    ),
    "script.pt": as_torchscript,
    "nvidia.pt": as_nvidia,
}


@pytest.fixture(scope="module")
def unscaled(weights: Path) -> dict[str, Tensor]:
    """Weights without a scale, as the FID's are."""
    state = read_checkpoint(weights)
    return {name: torch.ones_like(value) if name.endswith("bn.weight") else value for name, value in state.items()}


@pytest.mark.parametrize("container", CONTAINERS)
def test_weights_are_the_fids_by_their_numbers_whatever_file_holds_them(
    unscaled: dict[str, Tensor], container: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {n: v for n, v in unscaled.items() if not n.startswith("fc.") and not n.endswith("num_batches_tracked")}
    counters = {n: torch.zeros((), dtype=torch.int64) for n in unscaled if n.endswith("num_batches_tracked")}
    monkeypatch.setattr(inception, "FID", digest_of(numbers | counters))
    CONTAINERS[container](unscaled, tmp_path / container)
    found = inception_features(tmp_path / container)
    assert (found.distance, found.fingerprint) == ("FID", inception.FID)
    if container == "plain.safetensors":  # one number away
        other = unscaled["Mixed_6e.branch_pool.bn.bias"].clone()
        other[5] = torch.nextafter(other[5], torch.tensor(9.0))
        save_file({**unscaled, "Mixed_6e.branch_pool.bn.bias": other}, tmp_path / container)
        assert "not the FID's" in inception_features(tmp_path / container).distance
    (tmp_path / container).unlink()


def test_the_usual_file_is_the_fids_and_found_in_the_cache_under_either_name(
    weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert inception.FILE.endswith(inception.SHA256[:8] + ".pth")
    monkeypatch.setattr(inception, "SHA256", hashlib.sha256(weights.read_bytes()).hexdigest())
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / inception.SAME_FILE).symlink_to(weights)
    standard = inception_features()
    assert (standard.distance, standard.dimension, standard.name) == ("FID", 2048, "inception")


def test_names_of_the_graph_are_those_that_others_publish() -> None:
    """Some of the 94, by hand from TensorFlow's graph (mixed_10/tower_1/mixed/conv_1 is a convolution there)."""
    names = inception._graph_names()
    assert len(names) == len(set(names.values())) == 94
    expected = {
        "Conv2d_1a_3x3": "conv",
        "Conv2d_4a_3x3": "conv_4",
        "Mixed_5b.branch5x5_2": "mixed.tower.conv_1",
        "Mixed_6a.branch3x3": "mixed_3.conv",
        "Mixed_6a.branch3x3dbl_3": "mixed_3.tower.conv_2",
        "Mixed_6e.branch7x7dbl_5": "mixed_7.tower_1.conv_4",
        "Mixed_7a.branch3x3_1": "mixed_8.tower.conv",
        "Mixed_7b.branch3x3_2b": "mixed_9.tower_mixed_conv_1",
        "Mixed_7c.branch3x3dbl_3a": "mixed_10.tower_1_mixed_conv",
        "Mixed_7c.branch_pool": "mixed_10.tower_2_conv",
    }
    assert {name: names[name] for name in expected} == expected


def test_weights_that_are_missing_or_of_another_network_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    with pytest.raises(ValueError, match=rf"{inception.FILE} is not there.*hub/checkpoints.*inception:PATH"):
        inception_features()
    with pytest.raises(ValueError, match=r"nowhere\.pth is not there"):
        inception_features(tmp_path / "nowhere.pth")
    some = {"Mixed_7a.branch3x3_1.bn.bias": torch.zeros(192)}
    torch.save(some, tmp_path / "some.pth")
    save_file(some, tmp_path / "some.safetensors")
    for name in ("some.pth", "some.safetensors"):
        with pytest.raises(ValueError, match=r"Conv2d_1a_3x3.bn.bias is missing, one of 469 such entries"):
            inception_features(tmp_path / name)
    with torch.device("meta"):
        state = InceptionV3().state_dict()
    for wrong, message in [
        ({"AuxLogits.conv0.conv.weight": torch.zeros(1)}, r"AuxLogits.conv0.conv.weight is \(1,\), one of 1 such"),
        ({"Mixed_7a.branch3x3_1.bn.bias": torch.zeros(3)}, r"Mixed_7a.branch3x3_1.bn.bias is \(3,\)"),
    ]:
        with pytest.raises(ValueError, match=message):
            inception._filled(state | wrong, tmp_path)
    (tmp_path / "wrong.pth").write_bytes(b"PK truncated")
    with pytest.raises(ValueError, match="not a plain checkpoint"):
        inception_features(tmp_path / "wrong.pth")
    torch.save([1, 2], tmp_path / "wrong.pth")
    with pytest.raises(ValueError, match="not a plain dictionary of weights"):
        inception_features(tmp_path / "wrong.pth")


# --- the contract -------------------------------------------------------------------------------------------------------------


def test_an_extractor_takes_images_of_8_bits_and_must_keep_its_promise() -> None:
    extractor = FeatureExtractor(
        "mean", "Fréchet distance, means", 1, "-", lambda x: x.float().mean(dim=(1, 2, 3))[:, None]
    )
    images = np.arange(24, dtype=np.uint8).reshape(2, 1, 3, 4)
    np.testing.assert_array_equal(extractor(images, batch_size=1), [[5.5], [17.5]])
    assert extractor(images[:0]).shape == (0, 1)
    with pytest.raises(ValueError, match=r"those of uint8 images \[n, C, H, W\], not torch.float64 \(2, 1, 3, 4\)"):
        extractor(images.astype(np.float64))  # type: ignore[arg-type]
    liar = FeatureExtractor("liar", "-", 2, "-", extractor.function)
    with pytest.raises(ValueError, match=r"must give 2 features of each image, but 2 images gave \(2, 1\)"):
        liar(images)


def test_samples_become_the_nearest_level() -> None:
    levels = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(to_levels(levels.float() / 127.5 - 1.0), levels)
    assert to_levels(torch.tensor([-3.0, 3.0, -1.0 + 0.49 / 127.5, -1.0 + 0.51 / 127.5])).tolist() == [0, 255, 0, 1]


# --- the embedded classifier ------------------------------------------------------------------------------------------------


def test_the_classifier_knows_garments_and_says_how_well() -> None:
    network = load_classifier()
    card = (folder() / "MODEL_CARD.md").read_text(encoding="utf-8")
    found = re.search(r"\*\*Accuracy: ([\d.]+) %\*\* of the 10,000 test images", card)
    assert found is not None
    claimed = float(found[1]) / 100.0
    assert claimed >= 0.91
    # 2,048 of those 10,000 are embedded; 5 standard errors of a share.
    share = accuracy(network, zoo.load_data("fashion-test"), zoo.load_labels("fashion-test"))
    assert abs(share - claimed) < 5.0 * math.sqrt(claimed * (1.0 - claimed) / 2048)
    assert (folder() / "weights.safetensors").stat().st_size < 400_000
    assert re.search(r"^python tools/train_classifier\.py --epochs \d+ --seed \d+ --threads 1$", card, re.MULTILINE)


def test_fashion_features_are_the_averages_before_the_last_layer() -> None:
    extractor, network = fashion_features(), load_classifier()
    images = zoo.load_data("fashion-test")[:5]
    found = torch.from_numpy(extractor(images))
    assert found.shape == (5, extractor.dimension) == (5, 64)
    assert extractor.distance == "Fréchet distance, fashion features"
    logits = found @ network.linear.weight.T + network.linear.bias
    with torch.no_grad():
        torch.testing.assert_close(logits, network(images.float() / 127.5 - 1.0), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match=r"grey 28 × 28 images, not images of shape \(3, 28, 28\)"):
        extractor(images.expand(-1, 3, -1, -1))


def test_fashion_features_tell_garments_from_noise_and_from_other_garments() -> None:
    extractor = fashion_features()
    train, test = zoo.load_data("fashion-train"), zoo.load_data("fashion-test")
    real, other = extractor(train[:600]), extractor(test[:600])
    labels = zoo.load_labels("fashion-test")
    generator = torch.Generator().manual_seed(0)
    noisy = test[:600].float() + 40.0 * torch.randn(600, 1, 28, 28, generator=generator)
    same = frechet_distance(other, real)
    assert frechet_distance(extractor(noisy.clamp(0, 255).to(torch.uint8)), real) > 10.0 * same
    assert frechet_distance(extractor(test[labels != 9]), real) > 2.0 * same  # no boots


def test_normalisations_fold_into_convolutions() -> None:
    torch.manual_seed(0)
    trained = NormalisedClassifier().eval()
    with torch.no_grad():
        for norm in trained.norms:
            assert isinstance(norm, torch.nn.BatchNorm2d)
            for values, low in (
                (norm.weight, 0.5),
                (norm.bias, -0.5),
                (norm.running_mean, -0.5),
                (norm.running_var, 0.5),
            ):
                assert values is not None
                values.copy_(low + torch.rand(len(values)))
        x = torch.randn(3, 1, 28, 28)
        torch.testing.assert_close(trained.folded()(x), trained(x), rtol=1e-4, atol=1e-5)


def test_training_learns_and_repeats_itself() -> None:
    images, labels = zoo.load_data("fashion-train")[:512], zoo.load_labels("fashion-train")[:512]
    two = labels < 2  # T-shirts and trousers
    # Long enough that the outcome does not hang on rounding, which differs between processors.
    network = train_classifier(images[two], labels[two], 16, seed=1, batch_size=16)
    assert accuracy(network, images[two], labels[two]) > 0.9
    once, again = (train_classifier(images[two], labels[two], 1, seed=1, batch_size=32) for _ in range(2))
    for one, other in zip(once.parameters(), again.parameters(), strict=True):
        assert torch.equal(one, other)
