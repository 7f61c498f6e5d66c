"""The embedded images are those they claim to be; every embedded model loads, is described, and is what it says."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dpstride import zoo
from dpstride.process import ForwardProcess
from dpstride.training.settings import TrainingSettings
from dpstride.training.train import train
from dpstride.zoo import models
from dpstride.zoo.data import DATA
from dpstride.zoo.idx import DEBIAN_FOLDER, read_fashion_mnist
from embed_data import embed_data

MEGABYTES = 20  # all embedded weights together
COUNT = 2048  # embedded images of each half of Fashion-MNIST
# sha256 of the first 512 rows (3,073 bytes each) of the official data_batch_1.bin and test_batch.bin, whose MD5 sums
# tools/cifar10.py checks: head -c 1573376 FILE | sha256sum
CIFAR_ROWS = {
    "cifar-train": "814faeb4d754235895e8ad39e719998843b63d0158a2b99f01ca9740f2023ef5",
    "cifar-test": "cef7d750c512f67b8890d0d04656e7dd3db97c256eb8fea25be67b1bdfdb794b",
}


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.mark.parametrize("name", ["fashion-train", "fashion-test"])
def test_embedded_images_are_upright_garments_of_ten_balanced_classes(name):
    images, labels = zoo.load_data(name), zoo.load_labels(name)
    assert images.dtype == torch.uint8
    assert images.shape == (COUNT, 1, 28, 28)
    assert name in zoo.data_names()
    counts = torch.bincount(labels.long())
    assert len(counts) == 10
    assert int(counts.min()) > 0.9 * COUNT / 10
    # Trousers (class 1) are taller than wide: rows are used over the whole height, columns are not.
    trousers = images[labels == 1].float().mean(dim=0)[0] > 32
    assert int(trousers.any(dim=1).sum()) > int(trousers.any(dim=0).sum())


@pytest.mark.parametrize("name", CIFAR_ROWS)
def test_embedded_colour_images_are_the_official_ones_to_the_byte(name):
    images, labels = zoo.load_data(name), zoo.load_labels(name)
    rows = torch.cat([labels[:, None], images.reshape(512, -1)], dim=1)
    assert hashlib.sha256(rows.numpy().tobytes()).hexdigest() == CIFAR_ROWS[name]


def test_every_embedded_data_set_is_what_its_description_says():
    assert tuple(DATA) == zoo.data_names() == tuple(zoo.describe_data())
    for name, data in DATA.items():
        images, labels = zoo.load_data(name), zoo.load_labels(name)
        assert images.dtype == labels.dtype == torch.uint8
        assert images.shape == (data.count, *data.shape)
        assert sorted(labels.unique().tolist()) == list(range(10))
        assert f"the first {data.count:,}" in zoo.describe_data()[name]


@pytest.mark.skipif(not DEBIAN_FOLDER.is_dir(), reason="needs Debian's dataset-fashion-mnist")
def test_embedded_images_are_the_first_of_each_split(tmp_path):
    for split in ("train", "test"):
        images, labels = read_fashion_mnist(split)
        assert torch.equal(zoo.load_data(f"fashion-{split}"), images[:COUNT])
        assert torch.equal(zoo.load_labels(f"fashion-{split}"), labels[:COUNT])


def test_embedding_writes_what_loading_reads(tmp_path, monkeypatch):
    """A round trip through a source of our own, of the same format."""
    import gzip
    import struct

    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (COUNT + 1, 28, 28), dtype=np.uint8)
    for split in ("train", "t10k"):
        header = struct.pack(">4B3I", 0, 0, 8, 3, *pixels.shape)
        (tmp_path / f"{split}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + pixels.tobytes(), 1))
        header = struct.pack(">4BI", 0, 0, 8, 1, len(pixels))
        (tmp_path / f"{split}-labels-idx1-ubyte.gz").write_bytes(gzip.compress(header + bytes(len(pixels)), 1))
    (tmp_path / "data").mkdir()
    embed_data("fashion-test", tmp_path / "data", tmp_path)
    monkeypatch.setattr("dpstride.zoo.data.files", lambda package: tmp_path)
    np.testing.assert_array_equal(zoo.load_data("fashion-test")[:, 0].numpy(), pixels[:COUNT])
    assert zoo.load_labels("fashion-test").shape == (COUNT,)


def test_embedding_colour_images_writes_what_loading_reads(tmp_path, monkeypatch):
    rows = np.random.default_rng(0).integers(0, 256, (520, 3073), dtype=np.uint8)
    rows[:, 0] %= 10
    (tmp_path / "test_batch.bin").write_bytes(rows.tobytes())
    (tmp_path / "data").mkdir()
    embed_data("cifar-test", tmp_path / "data", tmp_path)
    monkeypatch.setattr("dpstride.zoo.data.files", lambda package: tmp_path)
    np.testing.assert_array_equal(zoo.load_data("cifar-test").reshape(512, -1).numpy(), rows[:512, 1:])
    np.testing.assert_array_equal(zoo.load_labels("cifar-test").numpy(), rows[:512, 0])
    (tmp_path / "test_batch.bin").write_bytes(rows[:100].tobytes())
    with pytest.raises(ValueError, match=r"cifar-test needs 512 images of shape \(3, 32, 32\), not \(100, 3, 32, 32\)"):
        embed_data("cifar-test", tmp_path / "data", tmp_path)


def test_the_licence_of_the_data_is_kept():
    text = (Path(zoo.__file__).parent / "data" / "LICENSE-fashion-mnist.txt").read_text(encoding="utf-8")
    assert "Zalando SE" in text
    assert "Permission is hereby granted" in text
    notice = (Path(zoo.__file__).parent / "data" / "NOTICE-cifar-10.txt").read_text(encoding="utf-8")
    for words in ("Alex Krizhevsky", "Learning Multiple Layers of Features from Tiny Images", "first 512 images"):
        assert words in notice


def test_missing_data_names_the_remedy(tmp_path):
    with pytest.raises(ValueError, match="no embedded data set 'mnist'"):
        zoo.load_data("mnist")
    with pytest.raises(FileNotFoundError, match="apt install dataset-fashion-mnist"):
        read_fashion_mnist("train", tmp_path)
    with pytest.raises(ValueError, match="split must be 'train' or 'test'"):
        read_fashion_mnist("dev", tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(__import__("gzip").compress(b"not idx"))
    with pytest.raises(ValueError, match="not an IDX file"):
        read_fashion_mnist("train", tmp_path)


def test_every_listed_model_loads_and_has_a_card():
    size = 0
    for name in zoo.names():
        folder, facts = zoo.folder_of(name), zoo.describe(name)
        card = (folder / "MODEL_CARD.md").read_text(encoding="utf-8")
        assert card.startswith("---\n")
        assert facts["command"] in card
        size += (folder / "unet" / "diffusion_pytorch_model.safetensors").stat().st_size
        denoiser = zoo.load(name)
        assert denoiser.name == name
        x_t = torch.randn(2, *denoiser.shape, generator=torch.Generator().manual_seed(0))
        prediction = denoiser(x_t, denoiser.process.T)
        assert bool(torch.isfinite(prediction.x0_hat).all())
        assert (prediction.fraction is not None) == (facts["variance"] == "learned_range")
    assert size <= MEGABYTES * 2**20
    assert zoo.describe() == {name: zoo.describe(name) for name in zoo.names()}


def test_an_unknown_model_is_refused_with_what_there_is():
    with pytest.raises(ValueError, match=r"no embedded model 'cifar-10'\. The zoo has"):
        zoo.load("cifar-10")
    with pytest.raises(AttributeError, match="no attribute 'save'"):
        _ = zoo.save


@pytest.mark.parametrize("objective", ["simple", "hybrid", "flow"])
def test_a_trained_folder_put_into_the_zoo_is_listed_and_loaded(objective, tmp_path, monkeypatch):
    process = {
        "simple": ForwardProcess.linear(12),
        "hybrid": ForwardProcess.cosine(12),
        "flow": ForwardProcess.rectified_flow(12),
    }[objective]
    settings = TrainingSettings(objective=objective, steps=2, channels=(8, 8), batch_size=4, warmup=1)
    folder = train(torch.zeros(8, 1, 8, 8, dtype=torch.uint8), tmp_path / "run", settings, process=process)
    monkeypatch.setattr(models, "_root", lambda: tmp_path / "models")
    assert zoo.names() == ()
    (tmp_path / "models").mkdir()
    folder.rename(tmp_path / "models" / "tiny")
    assert zoo.names() == ("tiny",)

    denoiser = zoo.load("tiny")
    np.testing.assert_array_equal(denoiser.process.f, process.f)
    assert denoiser.shape == (1, 8, 8)
    from diffusers import UNet2DModel

    unet = UNet2DModel.from_pretrained(tmp_path / "models" / "tiny" / "unet").eval()
    x_t, t = torch.randn(2, 1, 8, 8), 5
    with torch.no_grad():
        fed = torch.tensor([t - 1] * 2) if process.kind == "discrete" else torch.tensor([1000.0 * t / 12] * 2)
        output = unet(x_t, fed).sample.double()[:, :1]
        f, g = process.f[t], process.g[t]
        x0_hat = (x_t - g * output) / (f + g) if objective == "flow" else (x_t - g * output) / f
        prediction = denoiser(x_t, t)
    torch.testing.assert_close(prediction.x0_hat.double(), x0_hat.clamp(-1.0, 1.0), rtol=1e-5, atol=1e-5)
    assert (prediction.fraction is not None) == (objective == "hybrid")


def test_a_description_that_cannot_be_trusted_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not written by `dpstride train`"):
        zoo.load_folder(tmp_path)
    (tmp_path / "dpstride.json").write_text(json.dumps({"format": "dpstride-model-9"}))
    with pytest.raises(ValueError, match="format 'dpstride-model-9' is not"):
        zoo.load_folder(tmp_path)
    with pytest.raises(ValueError, match="a process of its own, 'functions'"):
        models.process_of({"process": "functions", "T": 10})


@pytest.mark.parametrize(("objective", "half"), [("simple", False), ("hybrid", True)])
def test_the_card_states_the_bits_per_dim_of_the_full_chain(objective, half, tmp_path, monkeypatch):
    """A few t per image, against the evaluator that visits every step."""
    from dpstride import bits_per_dim, even_stride
    from full_chain import full_chain_bpd
    from install_model import install

    images = torch.zeros(512, 1, 8, 8, dtype=torch.uint8)
    images[:, :, 2:6, 2:6] = torch.arange(512).reshape(-1, 1, 1, 1).remainder(256).to(torch.uint8)
    process = ForwardProcess.linear(25) if objective == "simple" else ForwardProcess.cosine(25)
    settings = TrainingSettings(objective=objective, steps=3, channels=(8, 8), batch_size=4, warmup=1)
    folder = train(images, tmp_path / "run", settings, process=process, command="dpstride train …")
    denoiser = zoo.load_folder(folder)
    found, error = full_chain_bpd(denoiser, images, draws=4)
    exact = bits_per_dim(denoiser, images, even_stride(process, 25), decoder="upper", batch_size=512)
    assert abs(found - exact.bpd) < 5 * (error + exact.standard_error)
    assert error < 0.05 * exact.bpd

    monkeypatch.setattr(models, "_root", lambda: tmp_path / "models")
    monkeypatch.setattr("install_model._root", models._root)
    monkeypatch.setattr("dpstride.zoo.data.load_data", lambda name: images)
    install(folder, "fashion-tiny", images=512, draws=4, half=half, note="A note.")
    card = (zoo.folder_of("fashion-tiny") / "MODEL_CARD.md").read_text(encoding="utf-8")
    if half:
        np.save(tmp_path / "test.npy", images.numpy())
        again = install(folder, "cifar-tiny", str(tmp_path / "test.npy"), images=512, draws=4, half=True)
        assert zoo.describe("cifar-tiny")["held_out"]["bpd"] == zoo.describe("fashion-tiny")["held_out"]["bpd"]
        assert "CIFAR-10" in (again / "MODEL_CARD.md").read_text(encoding="utf-8")
        assert f"in float32 it is {found:.4f}" in card
        file = "unet/diffusion_pytorch_model.safetensors"
        assert (again / file).stat().st_size < 0.6 * (folder / file).stat().st_size
        found, error = full_chain_bpd(zoo.load("fashion-tiny"), images, draws=4)
    assert zoo.describe("fashion-tiny")["held_out"]["bpd"] == round(found, 4)
    assert f"**Held-out bits/dim: {found:.3f} ± {error:.3f}**" in card
    assert "A note." in card
    assert "dpstride train …" in card
