"""A small transformer of characters: text as tokens, the network, and the folder that `dpstride train masked` writes.

The alphabet is part of the model: lower-case letters, a space for any white space, and some punctuation. All other characters
of a text are dropped.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from dpstride.masked.denoiser import MaskedDenoiser
from dpstride.reading.documents import read_json_object
from dpstride.reading.limits import UnreadableFileError
from dpstride.runs.numbers import whole_number
from dpstride.runs.writing import atomic, write_json

ALPHABET = " abcdefghijklmnopqrstuvwxyz.,;:!?'-"
DESCRIPTION, WEIGHTS = "dpstride.json", "model.safetensors"
FORMAT = "dpstride-masked-model-1"
FEW = 64  # number of layers up to which a network is built whatever its weights
LIMITS = {"length": 65_536, "width": 8192, "layers": 256, "heads": 256}


@dataclass(frozen=True)
class Architecture:
    """Sizes of a `CharacterTransformer`."""

    length: int = 128
    width: int = 128
    layers: int = 6
    heads: int = 4

    def __post_init__(self) -> None:
        for name, most in LIMITS.items():
            whole_number(getattr(self, name), f"{name} must be a whole number from 1 to {most}", 1, most)
        if self.width % (2 * self.heads):
            raise ValueError(
                f"width must be a multiple of twice the heads, {2 * self.heads}, not {self.width}. Change one of them."
            )


class CharacterTransformer(nn.Module):
    """Tokens [B, n] → logits [B, n, alphabet]: a bidirectional transformer with pre-norm blocks and rotary positions.

    Learned positions leave the loss at the entropy of single characters for thousands of steps; rotary ones do not.
    """

    stateless = True

    def __init__(self, architecture: Architecture, alphabet: int = len(ALPHABET)) -> None:
        super().__init__()
        self.architecture = architecture
        width = architecture.width
        self.token = nn.Embedding(alphabet + 1, width)  # the last is the mask
        self.blocks = nn.ModuleList(_Block(width, architecture.heads) for _ in range(architecture.layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, alphabet)
        for name, parameter in self.named_parameters():
            if name.endswith("weight") and parameter.ndim == 2:
                # Outputs that are added to the stream start smaller the deeper the network is.
                depth = math.sqrt(2.0 * architecture.layers) if name.endswith(("out.weight", "down.weight")) else 1.0
                nn.init.normal_(parameter, std=0.02 / depth)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of every position."""
        x = self.token(tokens)
        angles = _angles(tokens.shape[1], self.architecture.width // self.architecture.heads).to(x)
        for block in self.blocks:
            x = block(x, angles)
        logits: Tensor = self.head(self.norm(x))
        return logits


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        B, n, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(B, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(_rotated(q, angles), _rotated(k, angles), v)
        x = x + self.out(attended.transpose(1, 2).reshape(B, n, width))
        y: Tensor = x + self.down(nn.functional.gelu(self.up(self.norm2(x))))
        return y


def _angles(n: int, width: int) -> Tensor:
    """Angles [n, width/2] by which the pairs of a head's numbers are turned at each place (Su et al. 2021)."""
    frequencies = 1000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return torch.arange(n, dtype=torch.float64)[:, None] * frequencies


def _rotated(x: Tensor, angles: Tensor) -> Tensor:
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], dim=-1)


# --- text --------------------------------------------------------------------------------------------------------------


def encode(text: str, alphabet: str = ALPHABET) -> npt.NDArray[np.int64]:
    """Token ids of a text: in lower case, with single spaces, without characters outside the alphabet."""
    kept = "".join(character for character in re.sub(r"\s+", " ", text.lower()) if character in alphabet)
    kept = re.sub(r" +", " ", kept)
    ids = {character: place for place, character in enumerate(alphabet)}
    return np.array([ids[character] for character in kept], dtype=np.int64)


def decode(ids: Any, alphabet: str = ALPHABET) -> str:
    """The text of token ids; a mask is shown as □."""
    return "".join((alphabet + "□")[int(place)] for place in ids)


def passages(text: str, length: int, alphabet: str = ALPHABET) -> npt.NDArray[np.int64]:
    """A text cut into passages of ``length`` tokens, [N, length]; the remainder is dropped."""
    ids = encode(text, alphabet)
    if len(ids) < length:
        raise ValueError(
            f"The model takes passages of {length} characters, but the text has only {len(ids)} characters of its alphabet "
            f"({alphabet.strip()} and the space). Give more text."
        )
    return ids[: len(ids) // length * length].reshape(-1, length)


# --- folders -----------------------------------------------------------------------------------------------------------


def save_characters(network: CharacterTransformer, folder: Path, facts: dict[str, Any]) -> None:
    """Write the weights as safetensors, and dpstride.json with the description of the model and ``facts``."""
    from safetensors.torch import save

    folder.mkdir(parents=True, exist_ok=True)
    with atomic(folder / WEIGHTS) as file:
        file.write(save({name: value.contiguous() for name, value in network.state_dict().items()}))
    sizes = {name: getattr(network.architecture, name) for name in LIMITS}
    parameters = sum(parameter.numel() for parameter in network.parameters())
    write_json(
        folder / DESCRIPTION, {"format": FORMAT, "alphabet": ALPHABET, **sizes, "parameters": parameters, **facts}
    )


def load_characters(folder: str | Path, name: str | None = None) -> MaskedDenoiser:
    """A folder written by `dpstride train masked`, as a `MaskedDenoiser` of its alphabet."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folder = Path(folder)
    facts = read_json_object(folder / DESCRIPTION)
    if facts.get("format") != FORMAT or facts.get("alphabet") != ALPHABET:
        raise UnreadableFileError(
            f"{folder / DESCRIPTION}: format {facts.get('format')!r:.80} is not {FORMAT!r}, or its alphabet is different. "
            "Name the model folder of a run of `dpstride train masked`."
        )
    try:
        weights = {key: value.float() for key, value in load_file(folder / WEIGHTS).items()}
        architecture = Architecture(**{size: facts.get(size) for size in LIMITS})  # type: ignore[arg-type]
        if architecture.layers > max(FEW, len(weights)):
            raise ValueError(f"it claims {architecture.layers} layers, but the weights have {len(weights)} tensors")
        with torch.device("meta"):  # allocate no memory for claimed sizes; the weights bring their own
            network = CharacterTransformer(architecture)
        network.load_state_dict(weights, assign=True)
    except (ValueError, RuntimeError, SafetensorError, OSError) as error:
        words = " ".join(str(error).split()) or type(error).__name__
        raise UnreadableFileError(f"{folder}: not a whole model ({words:.200}). Export it again.") from error
    length = network.architecture.length
    return MaskedDenoiser(network, len(ALPHABET), len(ALPHABET), length, name=name or folder.name)
