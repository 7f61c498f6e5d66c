"""A small classifier of Fashion-MNIST, whose last features measure the distance of samples from real images.

Its Fréchet distance is always called "Fréchet distance, fashion features": those of other networks, FID above all, are on
other scales. `tools/train_classifier.py` in the repository trains it again.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from torch import Tensor, nn
from torch.nn.functional import relu

from ..evaluate.features.extractor import FeatureExtractor, digest_of

WEIGHTS = "weights.safetensors"
CLASSES = 10
SIZE = 28
# Input channels, output channels and stride of the 3 × 3 convolutions.
LAYERS = ((1, 16, 1), (16, 32, 2), (32, 48, 1), (48, 64, 2), (64, 64, 1))
DIMENSION = LAYERS[-1][1]


class FashionClassifier(nn.Module):
    """Five convolutions with rectifiers, averages over the image (the 64 features), one linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, stride, padding=1) for a, b, stride in LAYERS)
        self.linear = nn.Linear(DIMENSION, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        """x [n, 1, 28, 28] in [−1, 1] → [n, 64]."""
        for convolution in self.convolutions:
            x = relu(convolution(x))
        return x.mean(dim=(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the ten classes, [n, 10]."""
        logits: Tensor = self.linear(self.features(x))
        return logits


def load_classifier() -> FashionClassifier:
    """The embedded classifier, ready for use."""
    from safetensors.torch import load_file

    network = FashionClassifier()
    network.load_state_dict(load_file(folder() / WEIGHTS))
    return network.eval()


def fashion_features() -> FeatureExtractor:
    """The embedded classifier's features of grey 28 × 28 images."""
    network = load_classifier()

    def features(images: Tensor) -> Tensor:
        if tuple(images.shape[1:]) != (1, SIZE, SIZE):
            raise ValueError(
                f"The fashion features need grey {SIZE} × {SIZE} images, not images of shape {tuple(images.shape[1:])}. "
                "Use inception:PATH, or an extractor of your own as package.module:function."
            )
        return network.features(images.float() / 127.5 - 1.0)

    return FeatureExtractor(
        name="fashion",
        distance="Fréchet distance, fashion features",
        dimension=DIMENSION,
        fingerprint=digest_of(network.state_dict()),
        function=features,
    )


def folder() -> Path:
    """The folder of the weights and their card."""
    return Path(str(files("dpstride.zoo"))) / "classifier"
