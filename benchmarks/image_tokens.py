"""Unmasking schedules on image tokens, where a few tokens settle much: docs/masked.md shows the table.

    python benchmarks/image_tokens.py

Tokens are the pixels of Fashion-MNIST averaged over 2×2, in eight levels, 196 of an image. The model is a mixture of 1,536
training images, each blurred in its levels, whose conditionals are known in closed form: the tokens that are known weigh the
images, and a masked token has the mixture of their levels. How much they are blurred is fitted on 256 other training images,
which also choose the schedules; 256 test images score them. Minutes on one core.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import torch
from beyond import table
from torch import Tensor

import dpstride
from dpstride import zoo
from dpstride.masked.comparison import WORDS, compare_masked

LEVELS, SIDE = 8, 14
TEMPLATES, CHOOSING, SCORING = 1536, 256, 256
BUDGETS = (1, 2, 4, 8, 16, 32, 64, SIDE * SIDE)
WIDTHS = (0.25, 0.35, 0.5, 0.7, 1.0)  # of the blur, in levels
MIXED = 0.01  # share of all levels alike, so that nothing is impossible

Ids = npt.NDArray[np.int64]


class ImageMixture(torch.nn.Module):
    """Logits of exact conditionals of a mixture of images, float64; token ``LEVELS`` is the mask."""

    stateless = True

    def __init__(self, images: Ids, width: float) -> None:
        super().__init__()
        levels = torch.arange(LEVELS)
        apart = (levels[:, None] - levels[None, :]).abs().double() / width
        blur = (1.0 - MIXED) * (-apart).softmax(dim=1) + MIXED / LEVELS  # [level of the image, level]
        self.register_buffer("p", blur[torch.from_numpy(images)])  # [images, tokens, levels]

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits [B, tokens, levels]."""
        p: Tensor = self.p  # type: ignore[assignment]
        known = torch.nn.functional.one_hot(tokens, LEVELS + 1)[..., :LEVELS].double()
        weights = (known.flatten(1) @ p.log().flatten(1).T).softmax(dim=1)
        return (weights @ p.flatten(1)).log().reshape(*tokens.shape, LEVELS)


def tokens_of(images: Tensor) -> Ids:
    """Images uint8 [N, 1, 28, 28] as tokens [N, 196]."""
    small = torch.nn.functional.avg_pool2d(images.double(), 2).flatten(1)
    return (small * LEVELS / 256.0).floor().long().numpy()


def main() -> None:
    torch.set_num_threads(1)
    train, test = (tokens_of(zoo.load_data(f"fashion-{half}")) for half in ("train", "test"))
    templates, choosing, scoring = train[:TEMPLATES], train[TEMPLATES : TEMPLATES + CHOOSING], test[:SCORING]
    fitted = {}
    for width in WIDTHS:
        model = dpstride.MaskedDenoiser(ImageMixture(templates, width), LEVELS, LEVELS, SIDE * SIDE)
        fitted[width] = dpstride.estimate_masked(
            model, choosing, counts=(49, 98, 147, 196), progress=False
        ).mean_nats.sum()
    width = min(fitted, key=fitted.__getitem__)
    model = dpstride.MaskedDenoiser(ImageMixture(templates, width), LEVELS, LEVELS, SIDE * SIDE)
    chose = dpstride.estimate_masked(model, choosing, seed=0, progress=False)
    scored = dpstride.estimate_masked(model, scoring, seed=1, progress=False)
    comparison = compare_masked(dpstride.masked_schedules(chose), scored, chose, BUDGETS)
    print(f"blur of {width} levels; c_t at 25, 50, 75, 90, 100 % masked, bits:", end=" ")
    shares = np.round(np.array([0.25, 0.5, 0.75, 0.9, 1.0]) * SIDE * SIDE).astype(int)
    print(", ".join(f"{c / math.log(2.0):.3f}" for c in scored.mean_nats[shares]), end="\n\n")
    rows = [[WORDS[rule], *(f"{curve[K][0]:.3f}" for K in BUDGETS)] for rule, curve in comparison.curves.items()]
    rows.append(["standard error of the best", *(f"{comparison.curves['dp'][K][1]:.3f}" for K in BUDGETS)])
    print(table(["bits/token, held-out", *map(str, BUDGETS)], rows))


if __name__ == "__main__":
    main()
