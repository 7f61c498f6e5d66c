"""Hugging Face transformers' masked language models: a local folder as a `MaskedDenoiser`, with its tokenizer.

Weights are safetensors, nothing is unpickled, and code in the folder is never run. Users who trust models that need such
code (LLaDA and Dream on the hub) load them on their own, and pass them to `MaskedDenoiser` as a function.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..devices import usable_device
from ..masked.denoiser import MaskedDenoiser
from ..masked.tokens import Tokens
from ..reading.limits import UnreadableFileError
from ..reading.text import first_line
from ..runs.extras import require
from .loaded import UnsupportedModelError, quietly
from .parts import read_part

ENDLESS = 1_000_000  # tokenizers without a limit declare a huge number


@dataclass(frozen=True, eq=False)
class LoadedMaskedModel:
    """A masked language model of transformers.

    Attributes:
        denoiser: the model, ready for `optimise_masked`, `bits_per_token` and `sample_masked`.
        tokenizer: the folder's tokenizer, or None if it has none.
        notes: what was read from the folder, one sentence each.
    """

    denoiser: MaskedDenoiser
    tokenizer: Any
    notes: tuple[str, ...] = ()

    def encode(self, texts: Sequence[str], length: int | None = None) -> Tokens:
        """Encode texts as data, cut to ``length`` tokens (the model's when None); tokens added by the tokenizer are known."""
        tokenizer, lines = self._tokenizer(), list(texts)
        if not lines:
            raise ValueError("There is no text: at least one non-empty line is needed. Give more text.")
        found = tokenizer(
            lines,
            truncation=True,
            max_length=length or self.denoiser.length,
            return_special_tokens_mask=True,
        )
        added = found["special_tokens_mask"]
        known = np.zeros((len(added), max(map(len, added), default=0)), dtype=bool)
        for row, mask in zip(known, added, strict=True):
            row[: len(mask)] = np.array(mask, dtype=bool)
        return Tokens.of(found["input_ids"], known=known)

    def decode(self, tokens: Any) -> list[str]:
        """Decode samples to texts, without special tokens."""
        texts: list[str] = self._tokenizer().batch_decode(tokens, skip_special_tokens=True)
        return texts

    def _tokenizer(self) -> Any:
        if self.tokenizer is None:
            raise ValueError(
                "The model's folder has no tokenizer. Tokenize texts yourself, and pass them to Tokens.of."
            )
        return self.tokenizer


def load_masked_lm(
    folder: str | os.PathLike[str],
    *,
    length: int | None = None,
    mask_token: int | None = None,
    pad_token: int | None = None,
    device: str | None = None,
) -> LoadedMaskedModel:
    """Load a masked language model of transformers (BERT, RoBERTa, ModernBERT, ESM, …) from a folder of `save_pretrained`.

    Args:
        folder: contains config.json, weights as safetensors and, to encode texts, the tokenizer's files.
        length: maximum number of tokens in a sequence; from config and tokenizer when None.
        mask_token: id of the mask; the tokenizer's when None.
        pad_token: id of padding, which is not attended to; the tokenizer's when None.
        device: device of the network; the CPU when None.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UnsupportedModelError(
            f"{root}: there is no such folder. Download the model first; nothing is downloaded here."
        )
    needed = "Masked language models of Hugging Face need transformers"
    transformers = require("transformers", needed, "text", UnsupportedModelError)
    with _clean_copy(root) as copy:
        model = _network(root, transformers.AutoModelForMaskedLM, copy / "network")
        has_tokenizer = any((copy / "tokenizer").iterdir())
        tokenizer = _load(root, transformers.AutoTokenizer, copy / "tokenizer") if has_tokenizer else None
    if device is not None:
        model = model.to(usable_device(device))
    mask = _token("mask_token", mask_token, tokenizer, root)
    pad = pad_token if pad_token is not None else getattr(tokenizer, "pad_token_id", None)
    most = _longest(model, tokenizer)
    if length is None and most is None:
        raise UnsupportedModelError(
            f"{root}: neither config nor tokenizer states the maximum number of tokens. Give length=."
        )
    taken = most if length is None else length
    assert taken is not None
    denoiser = MaskedDenoiser(
        _Logits(model, pad), int(model.config.vocab_size), mask, taken, pad_token=pad, name=root.resolve().name
    )
    notes = (
        f"{type(model).__name__} of transformers, {denoiser.vocabulary:,} token ids, up to {taken:,} tokens",
        f"masked tokens are {mask}; "
        + ("there is no padding" if pad is None else f"padding is {pad}, not attended to"),
    )
    return LoadedMaskedModel(denoiser, tokenizer, notes)


class _Logits:
    """A model of transformers as a function from tokens to logits; padding is not attended to."""

    stateless = True

    def __init__(self, model: nn.Module, pad_token: int | None) -> None:
        self.model, self.pad_token = model, pad_token

    def __call__(self, tokens: Tensor) -> Tensor:
        mask = None if self.pad_token is None else (tokens != self.pad_token).long()
        logits: Tensor = self.model(input_ids=tokens, attention_mask=mask).logits
        return logits


@contextmanager
def _clean_copy(root: Path) -> Iterator[Path]:
    """Yield a temporary copy of network and tokenizer that contains data only."""
    try:
        network = read_part(root, root, "network", "transformers")
        words = read_part(root, root, "tokenizer", "transformers")
    except UnreadableFileError as error:
        raise UnsupportedModelError(str(error)) from error
    if pickled := [path.name for path in network.weights if path.suffix != ".safetensors"]:
        raise UnsupportedModelError(
            f"{root / pickled[0]}: weights must be safetensors, since nothing is unpickled. Save the model again with "
            "save_pretrained of a current version of transformers."
        )
    with tempfile.TemporaryDirectory(prefix="dpstride-", ignore_cleanup_errors=True) as copy:
        network.write(Path(copy) / "network")
        if words.vocabularies:
            words.write(Path(copy) / "tokenizer")
        else:
            (Path(copy) / "tokenizer").mkdir()
        yield Path(copy)


def _load(root: Path, kind: Any, copy: Path, **options: Any) -> Any:
    try:
        with quietly():
            return kind.from_pretrained(copy, local_files_only=True, trust_remote_code=False, **options)
    except Exception as error:  # transformers raises anything on a wrong config
        why = first_line(error, 300)
        raise UnsupportedModelError(
            f"{root}: transformers' {kind.__name__} could not load it ({why}). It must be a masked language model."
        ) from error


def _network(root: Path, kind: Any, copy: Path) -> Any:
    """Load the model; refuse missing weights, which transformers would initialise at random."""
    model, found = _load(root, kind, copy, use_safetensors=True, output_loading_info=True)
    if missing := sorted(found["missing_keys"]):
        raise UnsupportedModelError(
            f"{root}: its weights lack {missing[0]!r:.80}{f' and {len(missing) - 1} more' if len(missing) > 1 else ''}. It "
            "must be saved with its masked-language head."
        )
    return model.float().eval()


def _token(name: str, given: int | None, tokenizer: Any, root: Path) -> int:
    found = given if given is not None else getattr(tokenizer, f"{name}_id", None)
    if found is None:
        raise UnsupportedModelError(
            f"{root}: the tokenizer has no {name.replace('_', ' ')}, or is missing. Give {name}=."
        )
    return int(found)


def _longest(model: Any, tokenizer: Any) -> int | None:
    """Return the maximum number of tokens by config and tokenizer; RoBERTa counts positions from after its padding token."""
    limits = []
    if (positions := getattr(model.config, "max_position_embeddings", None)) is not None:
        behind = [
            module.padding_idx + 1
            for name, module in model.named_modules()
            if name.endswith("embeddings") and isinstance(getattr(module, "padding_idx", None), int)
            and hasattr(module, "position_embeddings")
        ]  # fmt: skip
        limits.append(int(positions) - max(behind, default=0))
    if tokenizer is not None and tokenizer.model_max_length < ENDLESS:
        limits.append(int(tokenizer.model_max_length))
    return min(limits, default=None)
