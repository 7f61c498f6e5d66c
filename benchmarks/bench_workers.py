"""Measure the speed-up from several processes, and the cost of each unit of work besides its network passes.

    python benchmarks/bench_workers.py [--quick] [--model fashion-simple] [--processes 2]

The same estimate runs in one process and in several, started by torchrun, with one thread each. Efficiency is the time of
one process over (processes × their time), after loading and warm-up; the results are compared bit for bit. Then the
quantities in docs/scaling.md are measured in one process: bytes of a unit's result, seconds to send it and to merge it,
seconds to draw noise.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measure import least_seconds, print_table

import dpstride
from dpstride import zoo
from dpstride.runs import workers
from dpstride.runs.execution import Execution
from dpstride.runs.progress import Progress
from dpstride.runs.storage import to_bytes
from dpstride.statistics.data import Samples
from dpstride.statistics.identity import identity_of
from dpstride.statistics.noise import standard_normal
from dpstride.statistics.passes import Passes
from dpstride.statistics.rows import Rows
from dpstride.statistics.units import Unit


def grid(name: str, times: int) -> dpstride.Denoiser:
    denoiser = zoo.load(name)
    T = denoiser.process.T
    return denoiser.on_grid(denoiser.process.subset(sorted({1, *range(T, 0, -(T // times))})))


def child(arguments: argparse.Namespace) -> None:
    """Run one process of a launch: warm up, wait for the others, work, and write the time it took."""
    torch.set_num_threads(1)
    joined = workers.join()
    denoiser, images = grid(arguments.model, arguments.times), zoo.load_data("fashion-test")[: arguments.samples]
    evaluations, network = [0], denoiser.network

    def counted(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        evaluations[0] += len(x)
        return network(x, t)

    dpstride.estimate(denoiser, images[:8], indices=[1, denoiser.process.T], progress=False)
    denoiser.network = counted
    joined.share(None)
    start, used = time.perf_counter(), time.process_time()
    path = arguments.child / f"statistics-{joined.size}" if joined.main else None
    dpstride.estimate(denoiser, images, progress=False, checkpoint=path)
    report = {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - used,
        "evaluations": evaluations[0],
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }
    (arguments.child / f"{joined.size}-{joined.rank}.json").write_text(json.dumps(report))


def launch(folder: Path, processes: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    words = [__file__, "--child", str(folder), "--model", arguments.model]
    words += ["--times", str(arguments.times), "--samples", str(arguments.samples)]
    runner = [sys.executable]
    if processes > 1:
        runner += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    subprocess.run([*runner, *words], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
    return [json.loads((folder / f"{processes}-{rank}.json").read_text()) for rank in range(processes)]


def speed(arguments: argparse.Namespace) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (one,) = launch(folder, 1, arguments)
        several = launch(folder, arguments.processes, arguments)
        same = (folder / "statistics-1").read_bytes() == (folder / f"statistics-{arguments.processes}").read_bytes()
    for count, reports in ((1, [one]), (arguments.processes, several)):
        seconds = max(report["seconds"] for report in reports)
        rows.append(
            (
                count,
                f"{seconds:.2f}",
                f"{sum(report['processor'] for report in reports):.2f}",
                " + ".join(str(report["evaluations"]) for report in reports),
                f"{max(report['memory'] for report in reports) / 2**20:.0f}",
                f"{one['seconds'] / (count * seconds):.3f}",
                "yes" if same else "NO",
            )
        )
    head = ("processes", "wall s", "processor s", "evaluations", "MiB each", "efficiency", "bits the same")
    print_table(f"{arguments.model}, {arguments.times} t × {arguments.samples} images, one thread each", head, rows)


def parts(learned: bool, shape: tuple[int, ...], samples: int) -> tuple[object, ...]:
    """Measure the costs of one unit of one t: the bytes of its result, and CPU seconds."""
    process = dpstride.ForwardProcess.cosine(4000)
    data = Samples.read(np.random.default_rng(0).integers(0, 256, (samples, *shape)).astype(np.uint8))

    def network(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x], dim=1) if learned else x

    variance: Any = "learned_range" if learned else "posterior"
    denoiser = dpstride.Denoiser(network, process, predicts="x0", variance=variance, dtype=torch.float32)
    identity = identity_of(denoiser, data, 0)
    arrays = Passes(denoiser, data, Execution()).run(Unit((300,), 0))
    rows = Rows(denoiser, data, identity, ())
    bytes_ = len(to_bytes(arrays))
    store = torch.distributed.HashStore()
    one, other = (workers.Workers(rank, 2, store=store) for rank in (0, 1))

    def hand_over() -> None:
        other._send("unit", arrays)
        one._receive("unit")

    with tempfile.TemporaryDirectory() as folder, Progress(Path(folder) / "p", identity) as progress:
        fold = least_seconds(lambda: (rows.add(Unit((300,), 0), arrays), progress.write("unit", arrays)), 20)[1]
    noise = least_seconds(lambda: standard_normal(0, "forward", 300, 0, samples, shape), 3)[1]
    return (
        f"{'learned' if learned else 'fixed'} variance, {samples} × {'×'.join(map(str, shape))}",
        f"{bytes_ / 1000:.0f}",
        f"{1e3 * least_seconds(hand_over, 20)[1]:.2f}",
        f"{1e3 * fold:.2f}",
        f"{1e3 * noise:.1f}",
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--model", default="fashion-simple")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--samples", type=int, default=64)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        child(arguments)
    else:
        if arguments.quick:
            arguments.times, arguments.samples = 8, 32
        speed(arguments)
        print_table(
            "A unit of 1,562 samples at one t, T = 4,000",
            ("unit", "result kB", "hand over ms", "fold in ms", "noise ms"),
            [parts(learned, (3, 32, 32), 1562) for learned in (False, True)],
        )
