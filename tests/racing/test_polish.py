"""Polish: what is tried, what is accepted, and that the path found is closer by a distance that chose nothing."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dpstride import Denoiser, ForwardProcess, Schedule, sample, tune
from dpstride.racing.arena import Arena
from dpstride.racing.halving import Purse
from dpstride.racing.measure import Measure
from dpstride.racing.polish import SHARES, places, polish, tries
from dpstride.racing.sampling import BuiltIn
from dpstride.samplers import Move, find
from dpstride.statistics.data import Samples
from dpstride.strides import karras_stride
from dpstride.zoo.mixture import mixture_data, mixture_denoiser
from gaussian import gaussian_denoiser

PROCESS = ForwardProcess.linear(200)
SPECTRUM = 1.0 / np.arange(1, 9)  # variances, as natural images have them


def wasserstein(denoiser: Denoiser, schedule: Schedule, sampler: str) -> float:
    """Squared Wasserstein distance of the samples' law from the data's N(0, diag SPECTRUM).

    With the ideal denoiser every step is linear and keeps coordinates apart, so samples are N(0, diag a²), where a is what
    becomes of x_T = 1.
    """
    x = torch.ones(1, 8, dtype=torch.float64)
    last, before = None, None
    for t, s in pairwise(schedule.steps):
        x0_hat = denoiser(x, t).x0_hat
        move = Move(process=denoiser.process, t=t, s=s, before=before, x=x, x0_hat=x0_hat, last=last)
        x = x0_hat if s == 0 else find(sampler).step(move)[0]
        last, before = x0_hat, t
    return float(np.square(np.abs(x.numpy()) - np.sqrt(SPECTRUM)).sum())


def arena_of(denoiser: Denoiser, sampler: Any, real: np.ndarray[Any, Any], folder: Path) -> Arena:
    data = Samples.read(torch.from_numpy(real), None, "continuous")
    return Arena(
        denoiser, BuiltIn(sampler), Measure(), real.astype(np.float32), conditioning=data, seed=0, folder=folder,
        identity={}, batch_size=256,
    )  # fmt: skip


def test_the_path_of_a_solver_with_memory_comes_closer_to_the_data(tmp_path: Path) -> None:
    denoiser = gaussian_denoiser(PROCESS, np.zeros(8), SPECTRUM)
    real = np.random.default_rng(0).normal(size=(400, 8)) * np.sqrt(SPECTRUM)
    arena = arena_of(denoiser, "dpmpp_2m", real, tmp_path)
    start, purse = karras_stride(PROCESS, 8), Purse()
    found, heat = polish(arena, start, "karras", 128, purse)
    before, after = (wasserstein(denoiser, each, "dpmpp_2m") for each in (start, found))
    assert after < 0.5 * before
    assert heat.winner == "karras, polished"
    assert heat.lead is not None
    first, last = heat.rounds[0].distances.values()
    assert heat.lead[0] == pytest.approx(first[0] - last[0])
    assert found.budget == 8
    assert 0 < purse.spent <= tries(8) * 8 * 128
    draws = sample(denoiser, start, 256, seed=0, sampler="dpmpp_2m").numpy()
    assert np.abs(draws.std(axis=0) - np.sqrt(SPECTRUM)).max() > 0.02  # there was something to mend


def test_a_path_that_noise_hides_is_left_alone_and_an_empty_purse_ends_it(tmp_path: Path) -> None:
    # Data of no spread around 0: every path ends at 0 exactly, so nothing is closer.
    denoiser = gaussian_denoiser(PROCESS, np.zeros(2), np.full(2, 1e-30))
    arena = arena_of(denoiser, "ddim", np.random.default_rng(0).normal(size=(40, 2)), tmp_path)
    start = karras_stride(PROCESS, 4)
    found, heat = polish(arena, start, "karras", 8, Purse())
    assert found is start
    assert (heat.winner, heat.lead, heat.stopped) == ("karras", None, False)
    purse = Purse(3 * 4 * 8)
    assert polish(arena, start, "karras", 8, purse)[1].stopped
    assert purse.left == 0


@pytest.mark.parametrize("process", [PROCESS, ForwardProcess.rectified_flow(100)], ids=lambda process: process.name)
def test_places_lie_between_the_neighbours(process: ForwardProcess) -> None:
    T = process.T
    for path in ((T, 60, 20, 0), (T, 3, 2, 0), (T, 1, 0), (T, T - 1, T - 2, 0)):
        for place in range(1, len(path) - 1):
            found = places(process, path, place)
            assert all(path[place + 1] < index < path[place - 1] for index in found)
            assert path[place] not in found
            assert len(found) <= len(SHARES)
    inner = places(process, (T, 80, 60, 20, 0), 2)
    sigma = -0.5 * process.log_snr
    up, down = sigma[80] - sigma[60], sigma[60] - sigma[20]
    wanted = [sigma[60] + share * (up if share > 0.0 else down) for share in SHARES]
    assert len(inner) == len(SHARES)
    assert np.abs(sigma[inner] - np.array(wanted)).max() <= 0.5 * np.diff(sigma[20:81]).max()


def test_tune_polishes_and_measures_the_result_with_the_others(tmp_path: Path) -> None:
    said: list[str] = []
    race = tune(
        mixture_denoiser(60), mixture_data(160, seed=0), tmp_path / "out", progress=False, say=said.append, polish=True,
        budgets=(3,), samples=16, race_samples=16, first_samples=16, choosing=16, reference=8, sampler="dpmpp_2m",
    )  # fmt: skip
    (heat,) = race.polished
    assert any("polishing" in line for line in said)
    moved = heat.winner.endswith(", polished")
    assert race.schedules.provenance["race"]["3"] == heat.winner
    assert race.finish.entries["raced", 3].steps == race.schedules[3].steps
    assert moved or any("Polishing found no path" in note for note in race.findings)
    assert "Polishing the winner of" in (tmp_path / "out" / "report.html").read_text()
    again = type(race).load(tmp_path / "out" / "race.json", race.schedules)
    assert again.polished == race.polished
