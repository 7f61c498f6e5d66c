"""Unmasking schedules on real text: tables of one masked model, beside n-grams and compressors.

    python benchmarks/text.py TEXT                     n-grams and compressors alone
    python benchmarks/text.py TEXT MODEL -o runs/text  the same, then bits/token by schedule, and judged samples

TEXT is plain text, MODEL the folder of a `dpstride train masked`, or any other that `dpstride find` takes for text. Every tenth
part of TEXT is held out, as in the training; half of that chooses schedules, the other half scores them, and an n-gram model of
the rest judges samples. It resumes after an interruption: `dpstride find` does, and every judged set of samples is kept in
judged.json. The tables are printed as Markdown, and written to tables.md.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from command import dpstride as run
from text_baselines import compressor_bits, ngram_bits

import dpstride
from dpstride.finding.inputs import load_model
from dpstride.integrations.masked_loading import MaskedSource
from dpstride.masked.comparison import COLUMNS, WORDS, compare_masked
from dpstride.masked.strides import RULES
from dpstride.options import BEST, Order
from dpstride.reading.plain import read_text
from dpstride.runs.writing import write_json, write_text
from dpstride.training.masked.text import split_text
from dpstride.zoo.characters import ALPHABET, CharacterTransformer

Ids = npt.NDArray[np.int64]
ORDERS: tuple[Order, ...] = ("random", "confidence")
GRAM = 3  # tokens of the n-grams that divergences are of


@dataclass(frozen=True)
class Parts:
    """The text in three parts [N, n]: for the judge, to choose schedules on, to score them on."""

    rest: Ids
    choosing: Ids
    scoring: Ids

    @classmethod
    def of(cls, source: MaskedSource, text: str) -> Parts:
        network, n = source.denoiser.network, source.denoiser.length
        if isinstance(network, CharacterTransformer):  # the split of its training
            rest, heldout = (_passages(part.astype(np.int64), n) for part in split_text(read_text(text), n))
        else:
            tokens = source.read(text)
            if (tokens.sizes != tokens.ids.shape[1]).any():
                raise SystemExit(
                    "Samples of one length are needed, with nothing known: give token ids as .npy [N, length]."
                )
            tenth = np.arange(len(tokens)) % 10 == 9
            rest, heldout = tokens.ids[~tenth], tokens.ids[tenth]
        heldout = np.random.default_rng(0).permutation(heldout)
        return cls(rest, heldout[: len(heldout) // 2], heldout[len(heldout) // 2 :])


def _passages(ids: Ids, n: int) -> Ids:
    return ids[: len(ids) // n * n].reshape(-1, n)


class Tables:
    """All tables of one model, made or taken from its folder."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.folder = options, Path(options.output)
        self.source = load_model(options.model)
        self.parts = Parts.of(self.source, options.text)
        self.folder.mkdir(parents=True, exist_ok=True)

    def scores(self) -> str:
        """Held-out bits/token by schedule, through the command that a user would type."""
        for name in ("choosing", "scoring"):
            np.save(self.folder / f"{name}.npy", getattr(self.parts, name))
        count = str(self.options.texts)
        files = [str(self.folder / name) for name in ("choosing.npy", "scoring.npy", "find")]
        words = ["find", self.options.model, files[0], "--heldout", files[1], "-o", files[2]]
        run([*words, "--samples", count, "--heldout-samples", count])
        comparison = compare_masked(self.schedules, self.scoring, self.choosing, self.budgets(self.schedules.budgets))
        rows = [
            [WORDS[rule], *(f"{bits:.3f}" for bits, _ in curve.values())] for rule, curve in comparison.curves.items()
        ]
        best = comparison.curves[BEST]
        rows.append(["standard error of the best", *(f"{error:.3f}" for _, error in best.values())])
        return _table(["bits/token, held-out", *map(str, best)], rows)

    @property
    def schedules(self) -> dpstride.MaskedScheduleSet:
        return dpstride.MaskedScheduleSet.load(self.folder / "find" / "schedules.json")

    @property
    def choosing(self) -> dpstride.MaskedStatistics:
        return dpstride.MaskedStatistics.load(self.folder / "find" / "statistics.safetensors").filled()

    @property
    def scoring(self) -> dpstride.MaskedStatistics:
        return dpstride.MaskedStatistics.load(self.folder / "find" / "heldout.safetensors").filled()

    def budgets(self, there: list[int]) -> list[int]:
        return sorted({K for K in (*COLUMNS[1:], self.schedules.length) if K in there})

    def judged(self) -> str:
        """Samples of every rule, number of rounds and order: bits/token of an n-gram model, and divergence of n-grams."""
        judge = dpstride.NgramModel.of(self.parts.rest, self.source.denoiser.vocabulary, self.options.order)
        path = self.folder / "judged.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        settings = {
            "samples": self.options.samples,
            "order": self.options.order,
            "model": self.source.denoiser.fingerprint,
        }
        if found.setdefault("settings", settings) != settings:
            raise SystemExit(f"{path} is of other settings ({found['settings']}). Give another -o.")
        real, others = np.array_split(self.parts.scoring[: 2 * self.options.samples], 2)
        found["real text"] = self._verdict(judge, real, others)
        for K in self.options.budgets:
            for rule, order in ((rule, order) for order in ORDERS for rule in (*RULES, BEST)):
                name = f"{rule}/{order}/{K}"
                schedule = self.schedules[K] if rule == BEST else RULES[rule].make(self.choosing, K)
                if name in found or (order != "random" and isinstance(schedule, dpstride.BinomialSchedule)):
                    continue
                drawn = dpstride.sample_masked(
                    self.source.denoiser, schedule, self.options.samples, order=order, progress=True
                )
                found[name] = self._verdict(judge, drawn.numpy(), others)
                write_json(path, found)
                print(name, found[name], flush=True)
        return self._judged_tables(found)

    def _verdict(self, judge: dpstride.NgramModel, samples: Ids, real: Ids) -> list[float]:
        return [*judge.bits_per_token(samples), dpstride.ngram_divergence(samples, real, GRAM)]

    def _judged_tables(self, found: dict[str, Any]) -> str:
        bits, error, divergence = found["real text"]
        text = [
            f"{self.options.samples} samples; {self.options.order}-gram bits/token, and divergence of {GRAM}-grams from real "
            f"text. Real text has {bits:.2f} ± {error:.2f} and {divergence:.3f}."
        ]
        for order in ORDERS:
            rows = []
            for rule in (*RULES, BEST):
                cells = [found.get(f"{rule}/{order}/{K}") for K in self.options.budgets]
                if any(cells):
                    rows.append(
                        [WORDS[rule], *("" if each is None else f"{each[0]:.2f}, {each[2]:.3f}" for each in cells)]
                    )
            text += ["", _table([f"{order} order", *map(str, self.options.budgets)], rows)]
        return "\n".join(text)


def baselines(text: str) -> str:
    train, heldout = split_text(read_text(text), 128)
    grams, compressors = ngram_bits(train, heldout), compressor_bits(train, heldout)
    rows = [[f"{order}-grams", f"{bits:.3f}"] for order, bits in grams.items()]
    rows += [[name, "not installed" if bits is None else f"{bits:.3f}"] for name, bits in compressors.items()]
    title = f"bits/character of {len(heldout):,} held out, {len(train):,} to learn from, alphabet of {len(ALPHABET)}"
    return _table([title, ""], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("model", nargs="?")
    parser.add_argument("-o", "--output", default="runs/text")
    parser.add_argument("--texts", type=int, default=256, help="passages that choose, and as many that score")
    parser.add_argument("--samples", type=int, default=128, help="samples of each rule, order and number of rounds")
    parser.add_argument("--budgets", type=int, nargs="*", default=[4, 8, 16, 32], help="rounds of the samples")
    parser.add_argument("--order", type=int, default=6, help="tokens of the judge's n-grams")
    options = parser.parse_args()
    parts = []
    if options.model is None or isinstance(load_model(options.model).denoiser.network, CharacterTransformer):
        parts.append(baselines(options.text))
        print(parts[-1], flush=True)
    if options.model is not None:
        tables = Tables(options)
        for make in (tables.scores, tables.judged):
            parts.append(make())
            print(parts[-1], flush=True)
        write_text(tables.folder / "tables.md", "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
