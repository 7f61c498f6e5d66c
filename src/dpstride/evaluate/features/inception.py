"""Stage 7. The FID's own network: Inception-v3 of 2015-12-05, as ported from TensorFlow, up to its last pooling.

The layout is data: each block is a table of branches, each branch a chain of convolutions by the names that the usual
weight file gives them. Where TensorFlow's graph differs from the published network (borders of average pools, a maximum
pool in the last block, the resizing of images) this follows the graph, since the FID is defined by it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, max_pool2d, relu

from ...reading.checkpoints import read_checkpoint
from ...reading.torchscript import is_torchscript, read_torchscript
from .extractor import FeatureExtractor, digest_of

FILE = "pt_inception-2015-12-05-6726825d.pth"
SAME_FILE = "weights-inception-2015-12-05-6726825d.pth"  # the name that torch-fidelity gives to the same bytes
# What says that weights are the FID's: their numbers, `digest_of` all that features depend on; or the bytes of that file.
FID = "45dbbd4f24a3a0cb"
SHA256 = "6726825d0af5f729cebd5821db510b11b1cfad8faad88a03f1befd49fb9129b2"
SIZE = 299
DIMENSION = 2048
EPSILON = 1e-3  # of the batch normalisations
COUNTER = "num_batches_tracked"

# A convolution is (name, channels, kernel, stride); "same" padding but for stride 2 and the stem's "valid" ones.
Convolution = tuple[str, int, tuple[int, int], int]
# A branch is a pool ("average", "maximum", "halve" or none), a chain, and convolutions that fork at its end.
Branch = tuple[str | None, list[Convolution], list[Convolution]]


def inception_features(weights: str | os.PathLike[str] | None = None) -> FeatureExtractor:
    """The FID's features: 2,048 numbers per image, grey or RGB, of any size.

    Args:
        weights: the usual file pt_inception-2015-12-05-6726825d.pth, its tensors in another (.pt, .safetensors), or the
            TorchScript archive of NVIDIA's metrics; None looks for the usual one in torch's hub cache. Nothing is
            downloaded. They make the distance the FID if their numbers are the FID's, whatever file holds them.
    """
    path = Path(weights) if weights is not None else _cached()
    if path is None or not path.is_file():
        raise ValueError(
            f"The FID needs the weights of its Inception network, and {path or FILE} is not there. Put {FILE} (96 MB, from "
            f"the releases of mseitzer/pytorch-fid; torch-fidelity's {SAME_FILE} is the same file) into "
            f"{_cache_folder()}, or give its path as inception:PATH."
        )
    network = _filled(_read(path), path)
    tensors = _tensors_of(network)
    standard = digest_of(tensors) == FID or hashlib.sha256(path.read_bytes()).hexdigest() == SHA256
    return FeatureExtractor(
        name="inception",
        # Any other weights make another distance, which must not pass for the FID.
        distance="FID" if standard else "Fréchet distance, Inception features with weights that are not the FID's",
        dimension=DIMENSION,
        fingerprint=digest_of(tensors),
        function=lambda images: network(prepare(images)),
    )


def prepare(images: Tensor) -> Tensor:
    """uint8 images [n, 1 or 3, H, W] as the network takes them: three channels, 299 × 299, (x − 128)/128."""
    if images.shape[1] not in (1, 3):
        raise ValueError(f"The FID's network takes grey or RGB images, not images of {images.shape[1]} channels.")
    return (_resize(images.float()).expand(-1, 3, -1, -1) - 128.0) / 128.0


def _resize(images: Tensor) -> Tensor:
    """Bilinear to 299 × 299 by TensorFlow 1's rule: pixel i of the result lies at i · in/299, with no half-pixel shift."""
    rows, columns = (_interpolation(size) for size in images.shape[2:])
    return rows @ images @ columns.T


def _interpolation(size: int) -> Tensor:
    """The matrix [299, size] that interpolates along one axis; beyond the last pixel it is repeated."""
    position = torch.arange(SIZE, dtype=torch.float64) * (size / SIZE)
    low = position.floor().long()
    share = position - low
    matrix = torch.zeros(SIZE, size, dtype=torch.float64)
    row = torch.arange(SIZE)
    matrix[row, low] += 1.0 - share
    matrix[row, (low + 1).clamp(max=size - 1)] += share
    return matrix.float()


class InceptionV3(nn.Module):
    """Images as `prepare` makes them → the 2,048 averages before the classifier, which is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = [name for name, *_ in STEM]
        channels = 3
        for name, width, kernel, stride, padding in STEM:
            self.add_module(name, _Unit(channels, width, kernel, stride, padding=padding))
            channels = width
        for name, branches in BLOCKS.items():
            block = _Block(channels, branches)
            self.add_module(name, block)
            channels = block.channels
        assert channels == DIMENSION

    def forward(self, x: Tensor) -> Tensor:
        """[n, 3, 299, 299] → [n, 2048]."""
        for name in self.stem:
            x = self.get_submodule(name)(x)
            if name in POOLED:
                x = max_pool2d(x, 3, stride=2)
        for name in BLOCKS:
            x = self.get_submodule(name)(x)
        return x.mean(dim=(2, 3))


class _Unit(nn.Module):
    """Convolution without bias, batch normalisation, rectifier."""

    def __init__(
        self, channels: int, width: int, kernel: tuple[int, int], stride: int, padding: tuple[int, int]
    ) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, width, kernel, stride, padding, bias=False)
        self.bn = nn.BatchNorm2d(width, eps=EPSILON)

    def forward(self, x: Tensor) -> Tensor:
        return relu(self.bn(self.conv(x)))


class _Block(nn.Module):
    """Branches side by side, their channels joined in the order of the table."""

    def __init__(self, channels: int, branches: list[Branch]) -> None:
        super().__init__()
        self.branches, self.channels = branches, 0
        for _, chain, fork in branches:
            width = channels
            for name, out, kernel, stride in chain:
                padding = _same(kernel) if stride == 1 else (0, 0)
                self.add_module(name, _Unit(width, out, kernel, stride, padding=padding))
                width = out
            for name, out, kernel, _ in fork:
                self.add_module(name, _Unit(width, out, kernel, 1, padding=_same(kernel)))
            self.channels += sum(out for _, out, _, _ in fork) or width

    def forward(self, x: Tensor) -> Tensor:
        parts = []
        for pool, chain, fork in self.branches:
            y = _pool(x, pool)
            for name, *_ in chain:
                y = self.get_submodule(name)(y)
            parts += [self.get_submodule(name)(y) for name, *_ in fork] or [y]
        return torch.cat(parts, dim=1)


def _same(kernel: tuple[int, int]) -> tuple[int, int]:
    return kernel[0] // 2, kernel[1] // 2


def _pool(x: Tensor, kind: str | None) -> Tensor:
    match kind:
        case "average":  # TensorFlow averages over the pixels that are there, not over the padding
            return avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
        case "maximum":
            return max_pool2d(x, 3, stride=1, padding=1)
        case "halve":
            return max_pool2d(x, 3, stride=2)
        case _:
            return x


# --- the layout -----------------------------------------------------------------------------------------------------------

STEM: list[tuple[str, int, tuple[int, int], int, tuple[int, int]]] = [
    ("Conv2d_1a_3x3", 32, (3, 3), 2, (0, 0)),
    ("Conv2d_2a_3x3", 32, (3, 3), 1, (0, 0)),
    ("Conv2d_2b_3x3", 64, (3, 3), 1, (1, 1)),
    ("Conv2d_3b_1x1", 80, (1, 1), 1, (0, 0)),
    ("Conv2d_4a_3x3", 192, (3, 3), 1, (0, 0)),
]
POOLED = ("Conv2d_2b_3x3", "Conv2d_4a_3x3")


def _chain(name: str, *convolutions: tuple[int, tuple[int, int]], stride: int = 1) -> list[Convolution]:
    """Convolutions name_1, name_2, …; the last one has the stride."""
    last = len(convolutions)
    return [
        (f"{name}_{i}", channels, kernel, stride if i == last else 1)
        for i, (channels, kernel) in enumerate(convolutions, start=1)
    ]


ONE, THREE, FIVE, WIDE, TALL = (1, 1), (3, 3), (5, 5), (1, 7), (7, 1)


def _point(name: str, channels: int) -> list[Convolution]:
    return [(name, channels, ONE, 1)]


def _block_35(pooled: int) -> list[Branch]:
    """Block of the 35 × 35 maps."""
    return [
        (None, _point("branch1x1", 64), []),
        (None, _chain("branch5x5", (48, ONE), (64, FIVE)), []),
        (None, _chain("branch3x3dbl", (64, ONE), (96, THREE), (96, THREE)), []),
        ("average", _point("branch_pool", pooled), []),
    ]


def _block_17(c: int) -> list[Branch]:
    """Block of the 17 × 17 maps, with 7 × 7 convolutions factorised through c channels."""
    return [
        (None, _point("branch1x1", 192), []),
        (None, _chain("branch7x7", (c, ONE), (c, WIDE), (192, TALL)), []),
        (None, _chain("branch7x7dbl", (c, ONE), (c, TALL), (c, WIDE), (c, TALL), (192, WIDE)), []),
        ("average", _point("branch_pool", 192), []),
    ]


def _block_8(pool: str) -> list[Branch]:
    """Block of the 8 × 8 maps, whose 3 × 3 branches end in a fork."""

    def fork(name: str) -> list[Convolution]:
        return [(f"{name}a", 384, (1, 3), 1), (f"{name}b", 384, (3, 1), 1)]

    return [
        (None, _point("branch1x1", 320), []),
        (None, _chain("branch3x3", (384, ONE)), fork("branch3x3_2")),
        (None, _chain("branch3x3dbl", (448, ONE), (384, THREE)), fork("branch3x3dbl_3")),
        (pool, _point("branch_pool", 192), []),
    ]


BLOCKS: dict[str, list[Branch]] = {
    "Mixed_5b": _block_35(32),
    "Mixed_5c": _block_35(64),
    "Mixed_5d": _block_35(64),
    "Mixed_6a": [
        (None, [("branch3x3", 384, THREE, 2)], []),
        (None, _chain("branch3x3dbl", (64, ONE), (96, THREE), (96, THREE), stride=2), []),
        ("halve", [], []),
    ],
    "Mixed_6b": _block_17(128),
    "Mixed_6c": _block_17(160),
    "Mixed_6d": _block_17(160),
    "Mixed_6e": _block_17(192),
    "Mixed_7a": [
        (None, _chain("branch3x3", (192, ONE), (320, THREE), stride=2), []),
        (None, _chain("branch7x7x3", (192, ONE), (192, WIDE), (192, TALL), (192, THREE), stride=2), []),
        ("halve", [], []),
    ],
    "Mixed_7b": _block_8("average"),
    # The published network averages here too; the FID's graph takes the maximum.
    "Mixed_7c": _block_8("maximum"),
}


# --- weights ---------------------------------------------------------------------------------------------------------------


def inception_is_cached() -> bool:
    """Return whether `inception_features` finds its weights without being told where."""
    return _cached() is not None


def _cache_folder() -> Path:
    return Path(torch.hub.get_dir()) / "checkpoints"


def _cached() -> Path | None:
    found = [path for name in (FILE, SAME_FILE) if (path := _cache_folder() / name).is_file()]
    return found[0] if found else None


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(path)
        except (SafetensorError, OSError, ValueError) as error:
            raise ValueError(f"{path}: not a whole file of weights ({error!s:.300}). Get it anew.") from error
    state = read_torchscript(path) if is_torchscript(path) else read_checkpoint(path)
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path}: not a plain dictionary of weights. The usual file is {FILE}.")
    return state


def _filled(state: dict[str, Tensor], path: Path) -> InceptionV3:
    """The network with these weights; the classifier's (fc) and counters of batches are not needed."""
    with torch.device("meta"):  # no random start for weights that are about to be replaced
        network = InceptionV3().eval()
    own = network.state_dict()
    state = _renamed(state)
    needed = {name for name in own if not name.endswith(COUNTER)}
    unknown = {name for name in state if name not in own and not name.startswith("fc.")}
    wrong = {name for name in needed & state.keys() if state[name].shape != own[name].shape}
    if problem := sorted(needed - state.keys()) or sorted(unknown) or sorted(wrong):
        found = tuple(state[problem[0]].shape) if problem[0] in state else "missing"
        raise ValueError(
            f"{path}: not the weights of the FID's Inception network: {problem[0]} is {found}, one of {len(problem)} such "
            f"entries. torchvision's own Inception-v3 is another network; the usual file is {FILE}."
        )
    network.load_state_dict({name: state[name].float() for name in needed}, strict=False, assign=True)
    return network


def _tensors_of(network: InceptionV3) -> dict[str, Tensor]:
    """All that features depend on, by name; counters of batches, on which they do not, are 0 as in the usual file."""
    return {
        name: torch.zeros((), dtype=torch.int64) if name.endswith(COUNTER) else value
        for name, value in network.state_dict().items()
    }


def _renamed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights under TensorFlow's names, as NVIDIA's metrics have them, under ours; others as they are.

    There a unit is weight, beta, mean and var: the graph has no scale, so the usual file's is 1.
    """
    mark = "mixed_10.tower_2_conv.weight"
    prefix = next((name.removesuffix(mark) for name in state if name.endswith(mark)), None)
    if prefix is None:
        return state
    parts = {"weight": "conv.weight", "beta": "bn.bias", "mean": "bn.running_mean", "var": "bn.running_var"}
    renamed = {}
    for ours, theirs in _graph_names().items():
        for part, name in parts.items():
            if (value := state.get(f"{prefix}{theirs}.{part}")) is not None:
                renamed[f"{ours}.{name}"] = value
        if (beta := renamed.get(f"{ours}.bn.bias")) is not None:
            renamed[f"{ours}.bn.weight"] = torch.ones_like(beta)
    return renamed


def _graph_names() -> dict[str, str]:
    """Names of the units here → those of TensorFlow's graph: conv, conv_1, …; mixed/tower/conv, mixed_1/tower_1/conv, …"""
    names = {name: _numbered("conv", i) for i, (name, *_) in enumerate(STEM)}
    for i, (block, branches) in enumerate(BLOCKS.items()):
        between = "_" if any(fork for *_, fork in branches) else "."
        towers = 0
        for pool, chain, fork in branches:
            if pool is None and len(chain) == 1 and not fork:
                names[f"{block}.{chain[0][0]}"] = f"{_numbered('mixed', i)}.conv"
                continue
            for kind, units in (("conv", chain), ("mixed_conv", fork)):
                for j, (name, *_) in enumerate(units):
                    tower = f"{_numbered('tower', towers)}{between}{_numbered(kind, j)}"
                    names[f"{block}.{name}"] = f"{_numbered('mixed', i)}.{tower}"
            towers += bool(chain)
    return names


def _numbered(name: str, number: int) -> str:
    return f"{name}_{number}" if number else name
