"""Count what `dpstride check` names, on trained networks described correctly and in every usual wrong way: docs/check.md.

    python benchmarks/check.py                       all models, about an hour on one core; goes on where it stopped
    python benchmarks/check.py fashion-simple --kinds predicts sign     some of them, and some kinds of wrong descriptions
    python benchmarks/check.py --page                write the table of docs/check.md from what was measured

Every case is a trained network (the zoo's, the exact mixture, and small ones trained here) with one description of it. For
wrong ones, what they move is measured too: bits/dim of the same samples and noise along the same path of 24 steps, even in
log-SNR, against the right description; of more samples where they have few dimensions, and each says less. Cases are kept
in runs/check/*.jsonl, one line each.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from check_models import RECIPES, shrunk, small_denoiser

import dpstride
from dpstride import Denoiser, ForwardProcess, Schedule, zoo
from dpstride.checking.kinds.processes import scaled_linear
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "runs" / "check"
PAGE = ROOT / "docs" / "check.md"
STEPS, SAMPLES, NUMBERS = 24, 16, 16 * 784  # samples at least, and as many as have so many numbers
MIXTURE = "mixture"
MATTERS = 0.02
RIGHT_SEEDS = 5


@dataclass(frozen=True)
class Model:
    """A trained network, correctly described, with held-out data."""

    denoiser: Denoiser
    data: torch.Tensor
    low: float = -1.0
    high: float = 1.0

    @property
    def data_range(self) -> Any:
        return ("levels", 256, self.low, self.high)


@dataclass(frozen=True)
class Case:
    """One description of a model: what differs from the right one, and what would mend it (any of these labels)."""

    kind: str
    name: str
    mends: tuple[str, ...]
    options: dict[str, Any] = field(default_factory=dict)
    data: Callable[[torch.Tensor], torch.Tensor] | None = None
    span: tuple[float, float] | None = None


def models(names: list[str]) -> Iterator[tuple[str, Model]]:
    for name in names:
        if name in RECIPES:
            denoiser, (_, _, low, high) = small_denoiser(name)
            yield name, Model(denoiser, shrunk("cifar-test"), low, high)
        elif name == MIXTURE:
            yield name, Model(mixture_denoiser(), mixture_data(512, seed=1))
        else:
            yield name, Model(zoo.load(name), zoo.load_data("fashion-test"))


def cases(model: Model) -> Iterator[Case]:
    denoiser = model.denoiser
    process, network = denoiser.process, denoiser.network
    T, fed = process.T, denoiser.times_fed.tolist()
    whole = isinstance(fed[1], int)
    for predicts in ("eps", "x0", "v", "flow"):
        if predicts != denoiser.predicts:
            yield Case("predicts", predicts, (f"predicts='{denoiser.predicts}'",), {"predicts": predicts})
    turned = f"predicts='{denoiser.predicts}' of the opposite sign"
    yield Case("sign", "output negated", (turned,), {"network": lambda x, time: -network(x, time)})
    if denoiser.variance == "learned_range":
        second = f"predicts='{denoiser.predicts}' in the second half of the channels"
        swapped = lambda x, time: torch.cat(network(x, time).chunk(2, 1)[::-1], 1)  # noqa: E731
        yield Case("sign", "halves of the channels swapped", (second,), {"network": swapped})
    step = 1 if whole else fed[2] - fed[1]
    back, ahead = "time one step earlier", "time one step later"
    declared: dict[str, tuple[tuple[str, ...], Callable[[int], float]]] = {
        "one step late": ((back, "time as index0"), lambda i: min(fed[i] + step, max(fed))),
        "one step early": ((ahead, "time as index0"), lambda i: max(fed[i] - step, 0)),
        "reversed": (("time reversed",), lambda i: fed[T] + (fed[1] if whole else 0.0) - fed[i]),
        "0 to 1000": (("time in (0, 1]", "declared time divided by 1000"), lambda i: 1000.0 * i / T),
    }
    if whole:
        declared["0 to 1000"] = (("time as index0", "time as index0, a float", back), lambda i: 1000.0 * i / T)
        declared["0 to 1"] = (("time as index0", "time as index0, a float"), lambda i: i / T)
        declared["a float"] = ((), lambda i: float(fed[i]))
        declared["rescaled"] = (("time as index0", "time as index0, a float"), lambda i: (i - 1) * 1000.0 / T)
        declared["sqrt(alpha_bar)"] = (("time as index0", "time as index0, a float"), lambda i: float(process.f[i]))
    else:
        declared["reversed"] = (("time reversed", "time in (0, 1]"), declared["reversed"][1])
        declared["index0"] = (("time in (0, 1]",), lambda i: i - 1)
    for name, (mends, time_input) in declared.items():
        if any(time_input(i) != fed[i] for i in range(1, T + 1)) or name == "a float":
            yield Case("time input", name, mends, {"time_input": time_input})
    mends = (_label(process),)
    for name, other in _processes(process).items():
        if not all(np.allclose(getattr(other, name), getattr(process, name), atol=2e-3) for name in "fg"):
            yield Case("process", name, mends, {"process": other})
    others = {"[-1, 1]": (-1.0, 1.0), "[0, 1]": (0.0, 1.0), "[0, 255]": (0.0, 255.0), "standardised": (-0.8, 2.1)}
    here = next(name for name, span in others.items() if span == (model.low, model.high))
    for name, span in others.items():
        if name != here:
            yield Case("data scale", name, (f"data in {here}",), {"clip": span}, span=span)
    yield Case("data scale", "inverted", ("inverted data",), data=lambda x: 255 - x)
    yield Case("arrangement", "rows and columns", ("rows and columns exchanged",), data=lambda x: x.transpose(-1, -2))
    if model.data.shape[1] == 3:
        yield Case("arrangement", "BGR", ("channels in reverse order (BGR)",), data=lambda x: x.flip(1))
    if any(isinstance(part, torch.nn.BatchNorm1d) for part in modules_of(network)):
        yield Case(
            "mode", "running statistics lost", ("network in training mode",), {"network": without_statistics(network)}
        )
    wrong = "v" if denoiser.predicts != "v" else "flow"
    other = "cosine" if _label(process) != "cosine process" else "sigmoid"
    both = {"predicts": wrong, "process": _processes(process)[other]}
    yield Case("two at once", f"{wrong} and {other}", (f"predicts='{denoiser.predicts}'",), both)


def without_statistics(network: Any) -> Any:
    """A copy whose batch normalisation has forgotten what it saw in training, so that only training mode is right."""
    forgetful = copy.deepcopy(network)
    for part in modules_of(forgetful):
        if isinstance(part, torch.nn.BatchNorm1d):
            part.reset_running_stats()
    return forgetful


def modules_of(network: Any) -> list[torch.nn.Module]:
    return list(network.modules()) if isinstance(network, torch.nn.Module) else []


def _label(process: ForwardProcess) -> str:
    names = {"vp_cosine": "cosine", "rectified_flow": "flow", "scaled_linear": "scaled linear"}
    return f"{names.get(process.name, process.name)} process"


def _processes(process: ForwardProcess) -> dict[str, ForwardProcess]:
    T = process.T
    u = np.arange(T + 1) / T
    s = 1.0 / (1.0 + np.exp(3.0 - 6.0 * u))
    sigmoid = np.clip((s[-1] - s) / (s[-1] - s[0]), 1e-9, 1.0)[1:]
    if process.kind == "continuous":
        times = process.times
        return {
            "linear": ForwardProcess.vp_linear(times=times),
            "cosine": ForwardProcess.vp_cosine(times=times),
            "sigmoid": ForwardProcess.from_functions(
                lambda t: np.sqrt(np.interp(t, u, np.append(1.0, sigmoid))),
                lambda t: np.sqrt(1.0 - np.interp(t, u, np.append(1.0, sigmoid))),
                times,
            ),
            "flow": ForwardProcess.rectified_flow(times=times),
            "sub-VP": ForwardProcess.sub_vp(times=times),
        }
    found = {
        "linear": ForwardProcess.linear(T),
        "cosine": ForwardProcess.cosine(T),
        "scaled linear": scaled_linear(T),
        "sigmoid": ForwardProcess.from_alpha_bar(sigmoid),
        "flow": ForwardProcess.rectified_flow(T),
        "sub-VP": ForwardProcess.sub_vp(T),
    }
    if np.allclose(process.f**2 + process.g**2, 1.0) and process.f[-1] > 1e-4:
        f = process.f[1:]
        f = (f - f[-1]) * f[0] / (f[0] - f[-1])
        found["zero terminal SNR"] = ForwardProcess.from_alpha_bar(np.maximum(f**2, 1e-9))
    return found


def described(model: Model, case: Case) -> tuple[Denoiser, torch.Tensor, Any]:
    right = model.denoiser
    options = {
        "predicts": right.predicts,
        "variance": right.variance,
        "clip": right.clip,
        "shape": right.shape,
        "time_input": right.time_input,
        "trained_continuous": right.trained_continuous,
        "name": right.name,
    } | case.options
    denoiser = Denoiser(options.pop("network", right.network), options.pop("process", right.process), **options)
    data = model.data if case.data is None else case.data(model.data)
    return denoiser, data, model.data_range if case.span is None else ("levels", 256, *case.span)


def bits_per_dim(model: Model, denoiser: Denoiser, data: torch.Tensor, data_range: Any) -> float:
    """Bits/dim along one path of the model, even in log-SNR."""
    log_snr = model.denoiser.process.log_snr[1:]
    wanted = np.linspace(log_snr[0], max(log_snr[-1], -8.0), STEPS)
    steps = sorted({1 + int(np.abs(log_snr - each).argmin()) for each in wanted} | {denoiser.process.T}, reverse=True)
    schedule = Schedule(denoiser.process, (*steps, 0), stride="even in log-SNR")
    samples = min(len(data), max(SAMPLES, NUMBERS // math.prod(data.shape[1:])))
    return dpstride.bits_per_dim(
        denoiser, data, schedule, samples=samples, data_range=data_range, variance="posterior", progress=False
    ).bpd


def measure(name: str, model: Model, options: argparse.Namespace) -> None:
    path = options.runs / f"{name}.jsonl"
    done = {(line["case"], line["seed"]) for line in read(path)}
    right = Case("right", "right", ())
    reference = math.nan
    wrong = [case for case in cases(model) if options.kinds is None or case.kind in options.kinds]
    for case, seed in [*((right, seed) for seed in range(options.seeds)), *((case, 0) for case in wrong)]:
        if (f"{case.kind}: {case.name}", seed) in done:
            continue
        if math.isnan(reference):
            reference = bits_per_dim(model, *described(model, right))
        line: dict[str, Any] = {"model": name, "kind": case.kind, "case": f"{case.kind}: {case.name}", "seed": seed}
        try:
            denoiser, data, data_range = described(model, case)
            found = dpstride.check(denoiser, data, seed=seed, data_range=data_range, progress=False)
            line |= {"verdict": found.verdict, "changes": found.changes, "tied": found.tied, "gain": found.gain}
            line |= {"gain_error": found.gain_error, "evaluations": found.evaluations}
            line["mended"] = any(label in found.changes for label in case.mends)
            line["listed"] = any(label in found.tied for label in case.mends)
            if case is not right:
                line["moves"] = bits_per_dim(model, denoiser, data, data_range) - reference
        except Exception as error:  # a network may refuse a time or a scale in any way it likes
            noticed = line.get("verdict") == "better"
            line |= {"verdict": "better" if noticed else "refused", "moves": math.inf}
            line["why"] = f"{type(error).__name__}: {error}"[:200]
        print(json.dumps(line, ensure_ascii=False), flush=True)
        with path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


HEAD = (
    "| kind | cases | move bits/dim by more than 0.02 | of these noticed | with the right remedy | "
    "right one listed as not told apart | quiet, and move less |"
)


def page(lines: list[dict[str, Any]]) -> str:
    """The table of docs/check.md."""
    rows = [HEAD, "|---|---|---|---|---|---|---|"]
    wrong = [line for line in lines if line["kind"] != "right"]
    for kind in [*dict.fromkeys(line["kind"] for line in wrong), "all"]:
        these = [line for line in wrong if kind in (line["kind"], "all")]
        moving = [line for line in these if line["moves"] > MATTERS]
        noticed = [line for line in moving if line["verdict"] in ("better", "refused")]
        mended = [line for line in noticed if line.get("mended")]
        quiet = [line for line in these if line not in moving and line["verdict"] == "fits"]
        listed = [line for line in moving if line not in noticed and line.get("listed")]
        counts = (these, moving, noticed, mended, listed, quiet)
        rows.append(f"| {kind} | {' | '.join(str(len(each)) for each in counts)} |")
    right = [line for line in lines if line["kind"] == "right"]
    accused = [line for line in right if line["verdict"] != "fits"]
    evaluations = sorted(line["evaluations"] for line in right)
    quietly = [line for line in wrong if line["moves"] > MATTERS and line["verdict"] not in ("better", "refused")]
    tied, missed = (
        [
            f"{line['model']}, {line['case']} ({line['moves']:+.3f})"
            for line in quietly
            if bool(line.get("listed")) is listed
        ]
        for listed in (True, False)
    )
    text = (
        f"{len(right)} right descriptions ({len({line['model'] for line in right})} networks): "
        f"{len(accused)} accused. Network evaluations of these: {evaluations[0]} to {evaluations[-1]}, "
        f"median {evaluations[len(evaluations) // 2]}."
    )
    names = f"Networks: {', '.join(sorted({line['model'] for line in lines}))}."
    told = f"Not told apart, and listed as such: {'; '.join(tied) or 'none'}."
    return "\n".join([*rows, "", names, text, "", told, "", f"Missed: {'; '.join(missed) or 'none'}."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="zoo names or small ones; all when none is given")
    parser.add_argument("--runs", type=Path, default=RUNS)
    parser.add_argument("--seeds", type=int, default=RIGHT_SEEDS, help="seeds of right descriptions")
    parser.add_argument("--kinds", nargs="*", help="kinds of wrong descriptions; all when left out")
    parser.add_argument("--page", action="store_true", help="write docs/check.md's table and stop")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    if options.page:
        lines = [line for path in sorted(options.runs.glob("*.jsonl")) for line in read(path)]
        pattern = re.compile(r"(?<=<!-- counted -->\n).*?(?=\n<!-- /counted -->)", re.DOTALL)
        PAGE.write_text(pattern.sub(lambda _: page(lines), PAGE.read_text()))
        return
    for name, model in models(options.models or [*zoo.names(), MIXTURE, *RECIPES]):
        measure(name, model, options)


if __name__ == "__main__":
    main()
