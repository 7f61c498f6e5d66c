"""A long run under a limit of memory: does it keep within it, and does it stay where it was?

    python benchmarks/soak.py [--minutes 120] [--memory 2.0] [--T 4000] [--samples 24] [--model NAME] [-o soak.json]

Estimates the same statistics again and again, each pass with another seed, with its progress kept on disk, until the time
is up, in a process that may not have more address space than the limit (RLIMIT_AS). Memory in use (RSS) is noted every
ten seconds. Within a pass it grows by the result, which is T rows. What an allocator keeps makes the peaks of passes differ
by some tens of MiB either way, so flat means that a line through the peaks, the first two passes left out, rises by no
more than that over the whole run: a leak of 1 MiB in each pass would show. Ends with 1 if it is not flat.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # every thread reserves address space of its own

import numpy as np
import torch

import dpstride
from dpstride import zoo

SLACK = 32 * 2**20  # an allocator that keeps a freed arena
WARM = 2  # passes in which everything is loaded and compiled for the first time


class TimeUpError(Exception):
    pass


def resident() -> int:
    """Bytes of memory in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def tiny(T: int) -> dpstride.Denoiser:
    """A small convolution with a learned variance, so that every field of statistics is there."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(2, 16, 3, padding=1), torch.nn.SiLU(), torch.nn.Conv2d(16, 2, 3, padding=1), torch.nn.Tanh()
    )

    def network(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return layers(torch.cat([x, (time / T).to(x.dtype).reshape(-1, 1, 1, 1).expand_as(x)], dim=1))

    process = dpstride.ForwardProcess.cosine(T)
    return dpstride.Denoiser(network, process, variance="learned_range", dtype=torch.float32, name="tiny")


def stopping(denoiser: dpstride.Denoiser, until: float) -> dpstride.Denoiser:
    """The same denoiser, whose network fails when the time is up."""
    network = denoiser.network

    def timed(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        if time.monotonic() > until:
            raise TimeUpError
        return network(x, t)

    denoiser.network = timed
    return denoiser


def growth(peaks: list[int]) -> float:
    """Bytes by which a line through the peaks rises from the first pass that counts to the last."""
    settled = peaks[WARM:]
    return float(np.polyfit(np.arange(len(settled)), settled, 1)[0]) * (len(settled) - 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--memory", type=float, default=2.0, help="limit in GiB")
    parser.add_argument("--T", type=int, default=4000)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--model", help="a zoo name; a tiny network of T steps unless given")
    parser.add_argument("-o", "--output", type=Path, help="JSON file for the log")
    arguments = parser.parse_args()
    limit = int(arguments.memory * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    start = time.monotonic()
    until = start + 60.0 * arguments.minutes
    model = tiny(arguments.T) if arguments.model is None else zoo.load(arguments.model)
    images, denoiser = zoo.load_data("fashion-test")[: arguments.samples], stopping(model, until)
    log: list[tuple[float, int, int]] = []  # seconds, pass, bytes
    number, done = 0, threading.Event()

    def watch() -> None:
        while not done.wait(10.0 if log else 0.0):
            log.append((round(time.monotonic() - start, 1), number, resident()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            while time.monotonic() < until:
                path = Path(folder) / f"pass-{number}"
                dpstride.estimate(denoiser, images, seed=number, progress=False, checkpoint=path)
                log.append((round(time.monotonic() - start, 1), number, resident()))
                path.unlink()
                number += 1
    except TimeUpError:
        pass
    finally:
        done.set()
        watcher.join()
    peaks = [max(held for _, each, held in log if each == n) for n in sorted({n for _, n, _ in log})]
    whole = peaks[:number]  # a last pass that was cut short says little
    enough = len(whole) >= WARM + 3
    risen = growth(whole) if enough else 0.0
    flat = risen <= SLACK
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for n, peak in enumerate(peaks):
        print(f"pass {n}: peak {peak / 2**20:.0f} MiB{'' if n < number else ' (cut short)'}")
    verdict = f"{'flat' if flat else 'NOT flat'}, {risen / 2**20:+.0f} MiB over the run"
    verdict = verdict if enough else f"too short to say: give it at least {WARM + 3} passes"
    print(
        f"{(time.monotonic() - start) / 60:.1f} minutes, T = {denoiser.process.T}, {len(images)} samples, {number} whole "
        f"passes, {number * denoiser.process.T * len(images):,} evaluations; most memory {highest / 2**20:.0f} MiB of "
        f"{limit / 2**20:.0f} MiB allowed: {verdict}."
    )
    if arguments.output is not None:
        document = {"limit": limit, "highest": highest, "peaks": peaks, "whole": number, "flat": flat, "log": log}
        arguments.output.write_text(json.dumps(document) + "\n", encoding="utf-8")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
