"""Train the classifier that provides the features for distances, and write its weights and its card.

``python tools/train_classifier.py --epochs 6 --threads 1``

The settings were fixed before the test images were used: nothing is chosen on them. Batch normalisation is used
only in training; it is folded into the convolutions at the end, so that features need no running averages.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, relu

from dpstride.zoo.classifier import CLASSES, DIMENSION, LAYERS, WEIGHTS, FashionClassifier, folder
from dpstride.zoo.idx import read_fashion_mnist

SHIFT = 2  # pixels by which training images are shifted at most


class NormalisedClassifier(nn.Module):
    """`FashionClassifier` with batch normalisation after every convolution, for training."""

    def __init__(self) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, stride, 1, bias=False) for a, b, stride in LAYERS)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _ in LAYERS)
        self.linear = nn.Linear(DIMENSION, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of the ten classes."""
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = relu(norm(convolution(x)))
        logits: Tensor = self.linear(x.mean(dim=(2, 3)))
        return logits

    def folded(self) -> FashionClassifier:
        """The same function without normalisations: γ (w∗x − m)/σ + β = (γ w/σ)∗x + (β − γ m/σ)."""
        plain = FashionClassifier()
        with torch.no_grad():
            for source, norm, target in zip(self.convolutions, self.norms, plain.convolutions, strict=True):
                assert isinstance(norm, nn.BatchNorm2d)
                assert norm.running_mean is not None
                assert norm.running_var is not None
                assert isinstance(source, nn.Conv2d)
                assert isinstance(target, nn.Conv2d)
                assert target.bias is not None
                scale = norm.weight / (norm.running_var + norm.eps).sqrt()
                target.weight.copy_(source.weight * scale[:, None, None, None])
                target.bias.copy_(norm.bias - norm.running_mean * scale)
            plain.linear.load_state_dict(self.linear.state_dict())
        return plain.eval()


def train_classifier(
    images: Tensor, labels: Tensor, epochs: int, seed: int = 0, batch_size: int = 128, rate: float = 0.01
) -> FashionClassifier:
    """Train on uint8 images [n, 1, 28, 28], flipped and shifted at random; the same on every run of one machine."""
    torch.manual_seed(seed)
    network = NormalisedClassifier().train()
    steps = epochs * (len(images) // batch_size)
    optimiser = torch.optim.AdamW(network.parameters(), lr=rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=rate, total_steps=steps, pct_start=0.25)
    for epoch in range(epochs):
        order = torch.randperm(len(images))
        total = 0.0
        for first in range(0, len(images) - batch_size + 1, batch_size):
            chosen = order[first : first + batch_size]
            loss = cross_entropy(network(_varied(images[chosen])), labels[chosen].long())
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1}: training loss {total / (len(images) // batch_size):.4f}", file=sys.stderr)
    return network.eval().folded()


def _varied(images: Tensor) -> Tensor:
    """Return images in [−1, 1], each randomly flipped left to right, and the batch shifted by up to two pixels, edges black."""
    flip = torch.rand(len(images)) < 0.5
    x = torch.where(flip[:, None, None, None], images.flip(3), images).float()
    down, right = (int(i) for i in torch.randint(0, 2 * SHIFT + 1, (2,)))
    height, width = images.shape[2:]
    return pad(x, (SHIFT,) * 4)[:, :, down : down + height, right : right + width] / 127.5 - 1.0


def model_card(command: str, share: float, count: int, trained_on: int, parameters: int) -> str:
    """Return MODEL_CARD.md of the classifier."""
    return f"""---
license: apache-2.0
datasets:
- zalando-datasets/fashion_mnist
metrics:
- accuracy
---

# fashion-classifier

Five convolutions and a linear layer, {parameters:,} parameters, for greyscale 28×28 images of clothing. Its features are the
{DIMENSION} averages before the linear layer: `dpstride study` compares samples with real images by the Fréchet
and kernel distances of these features.

**Accuracy: {100 * share:.2f} %** of the {count:,} test images of Fashion-MNIST, used neither for training nor for any choice.

Trained on the {trained_on:,} training images, randomly flipped and shifted by up to {SHIFT} pixels, with

```
{command}
```

The distance is called "Fréchet distance, fashion features". It is not the FID, and cannot be compared with one: the features
distinguish classes of clothing, and have their own scale. The data set is Fashion-MNIST, © 2017 Zalando SE, MIT licence.
"""


def accuracy(network: nn.Module, images: Tensor, labels: Tensor, batch_size: int = 500) -> float:
    """Return the share of uint8 images [n, 1, 28, 28] that are classified correctly."""
    right = 0
    with torch.inference_mode():
        for first in range(0, len(images), batch_size):
            part = slice(first, first + batch_size)
            logits = network(images[part].float() / 127.5 - 1.0)
            right += int((logits.argmax(dim=1) == labels[part]).sum())
    return right / len(images)


@click.command()
@click.option("--epochs", type=click.IntRange(1), default=6, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True)
@click.option("--data", type=click.Path(path_type=Path), help="Folder of Fashion-MNIST's .gz files.  [Debian's]")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder.  [the package's own]")
def main(epochs: int, seed: int, threads: int, data: Path | None, output: Path | None) -> None:
    """Train the fashion classifier, and write its weights and its card."""
    from safetensors.torch import save_file

    torch.set_num_threads(threads)
    target = folder() if output is None else output
    network = train_classifier(*read_fashion_mnist("train", data), epochs, seed)
    images, labels = read_fashion_mnist("test", data)
    share = accuracy(network, images, labels)
    target.mkdir(parents=True, exist_ok=True)
    save_file(network.state_dict(), target / WEIGHTS)
    words = ["python", "tools/train_classifier.py", "--epochs", str(epochs), "--seed", str(seed)]
    parameters = sum(parameter.numel() for parameter in network.parameters())
    card = model_card(shlex.join([*words, "--threads", str(threads)]), share, len(images), 60_000, parameters)
    (target / "MODEL_CARD.md").write_text(card, encoding="utf-8")
    click.echo(f"{target}: {100 * share:.2f} % of {len(images):,} test images")


if __name__ == "__main__":
    main()
