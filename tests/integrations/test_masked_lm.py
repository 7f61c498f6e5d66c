"""Masked language models of transformers: tiny random ones, from folders, without code and without pickles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

import dpstride
from dpstride.integrations.loaded import UnsupportedModelError

WORDS = ["<pad>", "<cls>", "<sep>", "<mask>", "<unk>", "a", "the", "cat", "sat", "on", "mat", "and", "dog", "ran", "by"]
WORDS += ["house", "red"]
TEXTS = ["the cat sat on a mat", "a dog ran by the red house", "the mat", "a cat and a dog"]


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    words.post_processor = TemplateProcessing(single="<cls> $A <sep>", special_tokens=[("<cls>", 1), ("<sep>", 2)])
    special = {"pad_token": "<pad>", "cls_token": "<cls>", "sep_token": "<sep>", "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", model_max_length=10**30, **special)


SIZES: dict[str, Any] = {
    "vocab_size": len(WORDS), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "pad_token_id": 0,
}  # fmt: skip


def make(kind: str, folder: Path, words: bool = True) -> None:
    torch.manual_seed(0)
    match kind:
        case "bert":
            model: Any = BertForMaskedLM(BertConfig(**SIZES, max_position_embeddings=12))
        case "roberta":
            model = RobertaForMaskedLM(RobertaConfig(**SIZES, max_position_embeddings=13))
        case "modernbert":
            ends = {"cls_token_id": 1, "sep_token_id": 2, "bos_token_id": 1, "eos_token_id": 2}
            model = ModernBertForMaskedLM(ModernBertConfig(**SIZES, **ends, max_position_embeddings=12))
    model.save_pretrained(folder)
    if words:
        tokenizer().save_pretrained(folder)


@pytest.mark.parametrize("kind", ["bert", "roberta", "modernbert"])
def test_from_a_folder_to_schedules_and_texts(kind: str, tmp_path: Path) -> None:
    make(kind, tmp_path)
    loaded = dpstride.load_masked_lm(tmp_path)
    assert loaded.denoiser.length == 12
    assert (loaded.denoiser.mask_token, loaded.denoiser.pad_token) == (3, 0)
    tokens = loaded.encode(TEXTS)
    assert tokens.lengths.tolist() == [8, 9, 4, 7]
    assert tokens.sizes.tolist() == [6, 7, 2, 5]  # <cls> and <sep> are always known
    schedules = dpstride.optimise_masked(loaded.denoiser, tokens, progress=False)
    assert schedules.budgets == list(range(1, 8))
    found = dpstride.bits_per_token(loaded.denoiser, tokens, schedules[3])
    assert found.tokens == 20
    samples = dpstride.sample_masked(loaded.denoiser, schedules[3], prompts=tokens, order="confidence")
    assert samples[:, 0].tolist() == [1] * 4
    assert not (samples == 3).any()
    assert all(isinstance(text, str) for text in loaded.decode(samples))
    assert samples[2, 4:].tolist() == [0] * 5


def test_find_takes_the_folder_and_a_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dpstride.cli import _run

    make("bert", tmp_path / "bert")
    (tmp_path / "book.txt").write_text("\n\n".join(TEXTS * 3))
    words = ["find", str(tmp_path / "bert"), str(tmp_path / "book.txt"), "-o", str(tmp_path / "out"), "--quiet"]
    assert _run(words) == 0
    assert "even times" not in capsys.readouterr().out  # which samples of different lengths do not have
    schedules = dpstride.MaskedScheduleSet.load(tmp_path / "out" / "schedules.json")
    assert schedules.budgets == list(range(1, schedules.length + 1))


def test_no_text_is_told(tmp_path: Path) -> None:
    """The tokenizer failed with an IndexError."""
    make("bert", tmp_path)
    with pytest.raises(ValueError, match="There is no text"):
        dpstride.load_masked_lm(tmp_path).encode([])


def test_padding_does_not_change_a_number(tmp_path: Path) -> None:
    make("bert", tmp_path)
    loaded = dpstride.load_masked_lm(tmp_path)
    alone = dpstride.estimate_masked(loaded.denoiser, loaded.encode(TEXTS[2:3]), progress=False)
    beside = loaded.encode([TEXTS[2], TEXTS[1]])
    padded = dpstride.estimate_masked(loaded.denoiser, beside, progress=False, counts=[4, 7])
    # All of the two words are masked in both, and of the longer text's seven all too.
    assert padded.nats[2, 0] == pytest.approx(alone.nats[2, 0], rel=1e-5)


def test_numbers_are_those_of_the_model_itself(tmp_path: Path) -> None:
    make("bert", tmp_path)
    loaded = dpstride.load_masked_lm(tmp_path)
    tokens = loaded.encode(TEXTS[:1])
    model = BertForMaskedLM.from_pretrained(tmp_path).eval()
    x = torch.from_numpy(np.where(tokens.free, 3, tokens.ids))
    with torch.no_grad():
        logits = model(input_ids=x).logits.double()
    logits[..., 3] = -torch.inf
    nats = torch.nn.functional.cross_entropy(logits[0], torch.from_numpy(tokens.ids[0]), reduction="none").numpy()
    found = dpstride.bits_per_token(loaded.denoiser, tokens, dpstride.even_unmasking(6, 1))
    assert found.bits * 6 * np.log(2.0) == pytest.approx(nats[tokens.free[0]].sum(), rel=1e-5)


def test_a_folder_without_a_tokenizer_needs_the_mask_token(tmp_path: Path) -> None:
    make("bert", tmp_path, words=False)
    with pytest.raises(UnsupportedModelError, match="Give mask_token="):
        dpstride.load_masked_lm(tmp_path)
    loaded = dpstride.load_masked_lm(tmp_path, mask_token=3, length=6)
    dpstride.estimate_masked(loaded.denoiser, [[5, 6, 7, 8, 9, 10]], progress=False)
    with pytest.raises(ValueError, match="has no tokenizer"):
        loaded.encode(TEXTS)


def test_pickles_and_code_are_refused(tmp_path: Path) -> None:
    make("bert", tmp_path)
    model = BertForMaskedLM.from_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"auto_map": {"AutoModelForMaskedLM": "code.Model"}}))
    with pytest.raises(UnsupportedModelError, match="names code that comes with the model"):
        dpstride.load_masked_lm(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "code.py").write_text("")
    with pytest.raises(UnsupportedModelError, match="code next to a model's files is not run"):
        dpstride.load_masked_lm(tmp_path)
    (tmp_path / "code.py").unlink()
    (tmp_path / "model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(UnsupportedModelError, match="weights must be safetensors"):
        dpstride.load_masked_lm(tmp_path)


def test_what_is_no_masked_language_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModelError, match="there is no such folder"):
        dpstride.load_masked_lm(tmp_path / "none")
    make("bert", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    with pytest.raises(UnsupportedModelError, match="must be a masked language model"):
        dpstride.load_masked_lm(tmp_path)


def test_weights_without_the_head_are_refused(tmp_path: Path) -> None:
    """Transformers would make up the missing ones at random, with a line in the log."""
    BertModel(BertConfig(**SIZES, max_position_embeddings=12)).save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    with pytest.raises(UnsupportedModelError, match="its weights lack"):
        dpstride.load_masked_lm(tmp_path)


class Output:
    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits


class LikeLLaDA(torch.nn.Module):
    """Called as LLaDA's and Dream's models are: an object with logits, of an embedding larger than the tokenizer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = torch.nn.Embedding(32, 8), torch.nn.Linear(8, 32)

    def forward(self, input_ids: torch.Tensor) -> Output:
        x = self.embedding(input_ids)
        return Output(self.head(x + x.mean(dim=1, keepdim=True)))


@pytest.mark.parametrize("shifted", [False, True])
def test_models_that_their_user_loads_are_wrapped_in_a_line(shifted: bool) -> None:
    torch.manual_seed(0)
    model = LikeLLaDA()
    denoiser = dpstride.MaskedDenoiser(lambda tokens: model(tokens).logits, 32, 31, 10, shifted=shifted)
    texts = dpstride.Tokens.of(np.random.default_rng(0).integers(0, 30, (4, 10)), prefixes=2)
    schedules = dpstride.optimise_masked(denoiser, texts.blocks(4), progress=False)
    assert schedules.length == 4
    table = schedules[2].num_transfer_tokens([4] * 4)
    assert table.sum(axis=1).tolist() == [4] * 4
    with pytest.raises(ValueError, match=r"lambda tokens: network\(tokens\).logits"):
        dpstride.optimise_masked(dpstride.MaskedDenoiser(model, 32, 31, 10), texts, progress=False)
