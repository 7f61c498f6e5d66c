"""Run for a long time under a memory limit, and check that memory use stays below the limit and does not grow.

    python benchmarks/soak.py [--minutes 120] [--memory 2.0] [--T 4000] [--samples 24] [--model NAME] [-o soak.json]

Estimates the same statistics repeatedly, each pass with another seed, with its progress saved on disk, until the time
is up, in a process whose address space is limited (RLIMIT_AS). Memory in use (RSS) is recorded every
ten seconds. Within a pass it grows by the result, which is T rows. Memory kept by the allocator makes the peaks of passes vary
by some tens of MiB either way, so "flat" means that a line fitted to the peaks, without the first two passes, rises by no
more than that over the whole run: a leak of 1 MiB per pass would show. Exits with 1 if it is not flat.
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

os.environ.setdefault("OMP_NUM_THREADS", "1")  # every thread reserves its own address space

import numpy as np
import torch

import dpstride
from dpstride import zoo

SLACK = 32 * 2**20  # for a freed arena that the allocator keeps
WARM = 2  # first passes, in which everything is loaded and compiled


class TimeUpError(Exception):
    pass


def resident() -> int:
    """Return the bytes of memory in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def tiny(T: int) -> dpstride.Denoiser:
    """Return a small convolutional network with a learned variance, so that every field of the statistics is used."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(
        torch.nn.Conv2d(2, 16, 3, padding=1), torch.nn.SiLU(), torch.nn.Conv2d(16, 2, 3, padding=1), torch.nn.Tanh()
    )

    def network(x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        return layers(torch.cat([x, (time / T).to(x.dtype).reshape(-1, 1, 1, 1).expand_as(x)], dim=1))

    process = dpstride.ForwardProcess.cosine(T)
    return dpstride.Denoiser(network, process, variance="learned_range", dtype=torch.float32, name="tiny")


def stopping(denoiser: dpstride.Denoiser, until: float) -> dpstride.Denoiser:
    """Make the denoiser's network fail when the time is up."""
    network = denoiser.network

    def timed(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        if time.monotonic() > until:
            raise TimeUpError
        return network(x, t)

    denoiser.network = timed
    return denoiser


def growth(peaks: list[int]) -> float:
    """Return the bytes by which a line fitted to the peaks rises from the first counted pass to the last."""
    settled = peaks[WARM:]
    return float(np.polyfit(np.arange(len(settled)), settled, 1)[0]) * (len(settled) - 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--memory", type=float, default=2.0, help="limit in GiB")
    parser.add_argument("--T", type=int, default=4000)
    parser.add_argument("--samples", type=int, default=24)
    parser.add_argument("--model", help="a zoo name; default: a tiny network with T steps")
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
    whole = peaks[:number]  # an incomplete last pass is not representative
    enough = len(whole) >= WARM + 3
    risen = growth(whole) if enough else 0.0
    flat = risen <= SLACK
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    for n, peak in enumerate(peaks):
        print(f"pass {n}: peak {peak / 2**20:.0f} MiB{'' if n < number else ' (cut short)'}")
    verdict = f"{'flat' if flat else 'NOT flat'}, {risen / 2**20:+.0f} MiB over the run"
    verdict = verdict if enough else f"too short to tell: at least {WARM + 3} passes are needed"
    print(
        f"{(time.monotonic() - start) / 60:.1f} minutes, T = {denoiser.process.T}, {len(images)} samples, {number} complete "
        f"passes, {number * denoiser.process.T * len(images):,} evaluations; peak memory {highest / 2**20:.0f} MiB of "
        f"{limit / 2**20:.0f} MiB allowed: {verdict}."
    )
    if arguments.output is not None:
        document = {"limit": limit, "highest": highest, "peaks": peaks, "whole": number, "flat": flat, "log": log}
        arguments.output.write_text(json.dumps(document) + "\n", encoding="utf-8")
    return 0 if flat else 1


if __name__ == "__main__":
    sys.exit(main())
