"""Costs of deterministic samplers against their definitions, the solver for steps with memory against all paths."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from dpstride import Denoiser, ForwardProcess, Schedule, StepCosts, even_stride, sample, solve
from dpstride.objectives.trajectory import propagation, trajectory_costs
from dpstride.runs.identity import OtherWorkError
from dpstride.runs.storage import read_arrays, write_arrays
from dpstride.statistics import trajectory as module
from dpstride.statistics.artefact import StatisticsFileError
from dpstride.statistics.noise import standard_normal
from dpstride.statistics.trajectory import estimate_trajectory
from dpstride.statistics.trajectory_artefact import Trajectory
from gaussian import Array, MixtureNetwork, gaussian_denoiser, paths_of

MEANS = np.array([[0.7, -0.4, 0.1], [-0.6, 0.5, 0.9], [0.0, -0.9, -0.7]])
PROCESSES = [
    ForwardProcess.linear(13),
    ForwardProcess.rectified_flow(9),  # f_T = 0
    ForwardProcess.ve(np.concatenate([[0.0], np.geomspace(0.05, 20.0, 8)])),
]


def mixture(process: ForwardProcess, clip: Any = None) -> Denoiser:
    network = MixtureNetwork(process, MEANS, 0.02)
    # The network is given x in the model's own coordinates and wants it in the process's.
    own = torch.tensor(process.input_scale)
    return Denoiser(
        lambda x, time: network(x / own[time + 1][:, None], time), process, predicts="x0", clip=clip, shape=(3,)
    )


def teacher_of(denoiser: Denoiser, samples: int, seed: int) -> tuple[dict[int, Array], dict[int, Array]]:
    """States and outputs of DDIM along every step, by Song et al.'s formula: x_s = f_s x̂_0 + g_s ε."""
    f, g, T = denoiser.process.f, denoiser.process.g, denoiser.process.T
    states = {T: standard_normal(seed, "prior", 0, 0, samples, (3,)).numpy()}
    outputs = {}
    for t in range(T, 0, -1):
        outputs[t] = denoiser(torch.from_numpy(states[t]), t).x0_hat.numpy()
        noise = (states[t] - f[t] * outputs[t]) / g[t]
        states[t - 1] = f[t - 1] * outputs[t] + g[t - 1] * noise
    return states, outputs


# --- the tables ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
@pytest.mark.parametrize("clip", [None, (-0.6, 0.6)])
def test_deviations_are_those_of_single_jumps(process: ForwardProcess, clip: Any) -> None:
    denoiser = mixture(process, clip)
    found = estimate_trajectory(denoiser, samples=7, seed=3, batch_size=3)
    states, outputs = teacher_of(denoiser, 7, 3)
    f, g, T = process.f, process.g, process.T
    for t, s in itertools.product(range(T + 1), repeat=2):
        if s >= t:
            assert found.deviation[t, s] == 0.0
            continue
        jump = f[s] * outputs[t] + g[s] * (states[t] - f[t] * outputs[t]) / g[t]
        expected = ((states[s] - jump) ** 2).sum() / 7
        assert found.deviation[t, s] == pytest.approx(expected, rel=1e-10, abs=1e-13)
    assert found.deviation[T, 0] > 1e-3  # that there is something to find
    assert found.end_variance == pytest.approx(states[0].var(axis=0).mean())


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_deviations_with_memory_are_those_of_dpm_solver(process: ForwardProcess) -> None:
    denoiser = mixture(process)
    found = estimate_trajectory(denoiser, samples=5, seed=1, batch_size=2, paired=process.T)
    states, outputs = teacher_of(denoiser, 5, 1)
    f, g, T = process.f, process.g, process.T
    assert found.coarse.tolist() == list(range(T + 1))
    count = 0
    for r, t, s in itertools.combinations(range(T, 0, -1), 3):
        # Lu et al. (2022), DPM-Solver++ (2M): h = λ_s − λ_t, ratio = h_last/h, D = (1 + 1/2 ratio) x̂_t − 1/2 ratio x̂_r
        h = math.log(f[s] / g[s]) - math.log(f[t] / g[t])
        h_last = math.inf if f[r] == 0.0 else math.log(f[t] / g[t]) - math.log(f[r] / g[r])
        ratio = h_last / h
        D = (1.0 + 0.5 / ratio) * outputs[t] - 0.5 / ratio * outputs[r]
        jump = g[s] / g[t] * states[t] - f[s] * math.expm1(-h) * D
        expected = ((states[s] - jump) ** 2).sum() / 5
        assert found.second[r, t, s] == pytest.approx(expected, rel=1e-9, abs=1e-13)
        count += 1
    assert count == np.count_nonzero(found.second)


def test_kept_and_coarse_grids_hold_the_entries_of_the_whole_one() -> None:
    process = ForwardProcess.linear(40)
    denoiser = mixture(process)
    whole = estimate_trajectory(denoiser, samples=4, paired=40)
    part = estimate_trajectory(denoiser, samples=4, kept=10, paired=5)
    kept = part.process.origin
    assert kept.tolist() == list(range(0, 41, 4))
    assert np.allclose(part.deviation, whole.deviation[np.ix_(kept, kept)], rtol=1e-9, atol=1e-13)
    coarse = kept[part.coarse]
    assert coarse[0] == 0
    assert coarse[-1] == 40
    assert 4 <= coarse.size <= 7
    assert np.allclose(part.second, whole.second[np.ix_(coarse, coarse, coarse)], rtol=1e-9, atol=1e-13)
    chosen = estimate_trajectory(denoiser, samples=4, kept=[7, 3, 20], paired=0)
    assert chosen.process.origin.tolist() == [0, 3, 7, 20, 40]


def test_conditioning_goes_with_its_sample() -> None:
    """A network that adds its conditioning: each sample's trajectory is that of a model with this one shift."""
    process = ForwardProcess.linear(20)
    network = MixtureNetwork(process, MEANS, 0.02)
    shifts = torch.tensor([0.0, 0.3, -0.2, 0.5, 0.1], dtype=torch.float64)

    def conditional(x: torch.Tensor, time: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        return network(x, time) + shift[:, None]

    denoiser = Denoiser(conditional, process, predicts="x0", clip=None, shape=(3,))
    found = [
        estimate_trajectory(denoiser, samples=5, batch_size=size, probes=4, conditioning=shifts) for size in (2, 5)
    ]
    expected, pushed = np.zeros((21, 21)), 0.0
    noises = standard_normal(0, "prior", 0, 0, 5, (3,))
    for n, shift in enumerate(shifts.tolist()):
        x, states, outputs = noises[n : n + 1], {}, {}
        for t in range(20, 0, -1):
            states[t], outputs[t] = x, network(x, torch.tensor([t - 1])) + shift
            noise = (x - process.f[t] * outputs[t]) / process.g[t]
            x = process.f[t - 1] * outputs[t] + process.g[t - 1] * noise
        for t, s in itertools.combinations(range(20, 0, -1), 2):
            noise = (states[t] - process.f[t] * outputs[t]) / process.g[t]
            jump = process.f[s] * outputs[t] + process.g[s] * noise
            expected[t, s] += float((states[s] - jump).square().sum()) / 5
        pushed += float((x - outputs[20]).square().sum()) / 5
    for each in found:
        assert np.allclose(each.deviation[:, 1:], expected[:, 1:], rtol=1e-9, atol=1e-12)
        assert each.deviation[20, 0] == pytest.approx(pushed, rel=1e-9)
        assert np.allclose(each.amplification, found[0].amplification, rtol=1e-9)


# --- from deviations to costs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", [ForwardProcess.vp_linear(20000), ForwardProcess.rectified_flow(20000)])
def test_errors_reach_the_end_of_gaussian_data_as_the_weight_says(process: ForwardProcess) -> None:
    """For N(μ, v I) a fine DDIM chain is linear: what it multiplies an error at s by is a product of slopes."""
    v, f, g = 0.3, process.f, process.g
    t = np.arange(1, process.T + 1)
    gain = v * f[t] / (v * f[t] ** 2 + g[t] ** 2)  # x̂_0 = gain x_t + const
    a = g[t - 1] / g[t]
    slope = a + (f[t - 1] - a * f[t]) * gain
    trajectory: Any = SimpleNamespace(end_variance=v)
    weight = propagation(process, trajectory, "gaussian")
    assert np.allclose(np.cumprod(slope)[1:-1] ** 2, weight[2:-1], rtol=2e-3)  # Euler's error with 20,000 steps
    assert weight[0] == 1.0


@pytest.mark.parametrize("process", [ForwardProcess.cosine(30), ForwardProcess.rectified_flow(25)])
def test_amplification_is_what_becomes_of_a_jump(process: ForwardProcess) -> None:
    """By definition: jump to a level, then take the teacher's own steps, and compare where both ways end."""
    denoiser, f, g = mixture(process), process.f, process.g
    found = estimate_trajectory(denoiser, samples=7, seed=3, batch_size=3, probes=5, kept=12)
    states, outputs = teacher_of(denoiser, 7, 3)
    levels = found.process.origin[found.levels].tolist()
    assert len(levels) >= 4
    for level, above, ratio in zip(levels, [*levels[1:], process.T], found.amplification, strict=True):
        assert above - level > 1
        x = f[level] * outputs[above] + g[level] * (states[above] - f[above] * outputs[above]) / g[above]
        error = ((x - states[level])[:5] ** 2).sum()
        for t in range(level, 0, -1):
            x0_hat = denoiser(torch.from_numpy(x), t).x0_hat.numpy()
            x = f[t - 1] * x0_hat + g[t - 1] * (x - f[t] * x0_hat) / g[t]
        assert ratio == pytest.approx(((x - states[0])[:5] ** 2).sum() / error, rel=1e-9)
    weight = propagation(found.process, found, "measured")
    assert np.allclose(weight[found.levels], found.amplification, rtol=1e-12)
    assert (weight[0], weight[-1]) == (1.0, 0.0)


def test_the_cost_of_a_path_bounds_its_distance_from_the_teacher() -> None:
    """On Gaussian data errors are all along one direction with one sign, so the bound is nearly reached."""
    process = ForwardProcess.vp_linear(300)
    denoiser = gaussian_denoiser(process, np.zeros(4), np.full(4, 0.3), time_input="time")
    trajectory = estimate_trajectory(denoiser, samples=40, seed=2, paired=0, batch_size=40)
    costs = trajectory_costs(trajectory)
    table = replace(costs, table=np.sqrt(costs.L))  # norms add up to at least the norm of the sum
    # Here what was measured is what the closed form says.
    expected = propagation(process, replace(trajectory, end_variance=0.3), "gaussian")
    assert np.allclose(trajectory.amplification, expected[trajectory.levels], rtol=0.05)
    solution = solve(table, 32)
    teacher = sample(denoiser, even_stride(process, 300), n=40, seed=2, sampler="ddim").double()
    for K in (4, 8, 16, 32):
        schedule = solution.schedule(K)
        ends = sample(denoiser, schedule, n=40, seed=2).double()  # by DDIM, which the schedule says it is for
        distance = float((ends - teacher).square().mean().sqrt())
        assert 0.6 * solution.cost(K) < distance < 1.05 * solution.cost(K)
        assert schedule.provenance["cost"] == pytest.approx(table.step_costs(schedule.steps).sum())
    assert trajectory_costs(trajectory).step_costs(range(300, -1, -1)).sum() == 0.0  # the teacher itself


def test_options_change_costs_by_their_formulas() -> None:
    process = ForwardProcess.rectified_flow(9)
    trajectory = estimate_trajectory(mixture(process), samples=6)
    t, s = 7, 4
    v = trajectory.end_variance
    squares = trajectory_costs(trajectory, "ddim", "gaussian").L
    weight = v / (v * process.f[s] ** 2 + process.g[s] ** 2)
    assert squares[t, s] == pytest.approx(weight * trajectory.deviation[t, s] / 3)
    assert np.isinf(squares[np.triu_indices(10)]).all()
    second = trajectory_costs(trajectory, "dpmpp_2m", "gaussian")
    assert second.triples is not None
    assert second.triples[8, t, s] == pytest.approx(weight * trajectory.second[8, t, s] / 3)


def test_what_chose_worse_paths_still_works_and_warns() -> None:
    process = ForwardProcess.rectified_flow(9)
    trajectory = estimate_trajectory(mixture(process), samples=6)
    t, s = 7, 4
    with pytest.warns(DeprecationWarning, match="weight='flat'"):
        flat = trajectory_costs(trajectory, weight="flat").L  # type: ignore[arg-type]
    assert flat[t, s] == pytest.approx(trajectory.deviation[t, s] / 3 / process.f[s] ** 2)
    squares = trajectory_costs(trajectory, "dpmpp_2m")
    with pytest.warns(DeprecationWarning, match="combine= is deprecated"):
        norms = trajectory_costs(trajectory, "dpmpp_2m", combine="norms")
    assert norms.triples is not None
    assert squares.triples is not None
    assert np.array_equal(norms.L, np.sqrt(squares.L))
    assert np.array_equal(norms.triples, np.sqrt(squares.triples))
    assert norms.options == {**squares.options, "combine": "norms"}


# --- the solver -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_paths_with_memory_are_the_best_of_all(seed: int) -> None:
    rng, T = np.random.default_rng(seed), 8
    L, triples = rng.random((T + 1, T + 1)), rng.random((T + 1, T + 1, T + 1)) * rng.choice([0.1, 1.0])
    table = StepCosts(process=ForwardProcess.linear(T), dims=1, table=L, triples=triples, unit="squares")
    solution = solve(table)
    for K in range(1, T + 1):
        costs = {}
        for path in paths_of(T, K):
            total = L[T, path[1]] + (L[path[-2], 0] if K > 1 else 0.0)
            costs[path] = total + sum(triples[path[i : i + 3]] for i in range(K - 2))
        best = min(costs, key=costs.__getitem__)
        assert solution.cost(K) == pytest.approx(costs[best], rel=1e-12)
        assert tuple(solution.path(K)) == best
        assert table.step_costs(best).sum() == pytest.approx(costs[best], rel=1e-12)
    with pytest.raises(ValueError, match="these costs are not nats"):
        solution.bpd(3)


def test_without_memory_triples_are_the_plain_recurrence() -> None:
    rng, T = np.random.default_rng(9), 40
    L = rng.random((T + 1, T + 1))
    plain = solve(L)
    solution = solve(
        StepCosts(
            process=ForwardProcess.linear(T),
            dims=1,
            table=L,
            triples=np.broadcast_to(L, (T + 1, T + 1, T + 1)),
            unit="squares",
        )
    )
    for K in range(1, T + 1):
        assert solution.cost(K) == pytest.approx(plain.cost(K), rel=1e-12)
        assert solution.path(K) == plain.path(K)


# --- keeping it -----------------------------------------------------------------------------------------------------------


def test_saved_trajectories_are_the_same_again(tmp_path: Path) -> None:
    found = estimate_trajectory(mixture(PROCESSES[0]), samples=4, paired=6)
    found.save(tmp_path / "t.safetensors")
    again = Trajectory.load(tmp_path / "t.safetensors")
    assert again.process.fingerprint == found.process.fingerprint
    for name in ("deviation", "second", "coarse", "levels", "amplification"):
        assert np.array_equal(getattr(again, name), getattr(found, name))
    assert (again.dims, again.samples, again.seed, again.model) == (3, 4, 0, found.model)
    content = (tmp_path / "t.safetensors").read_bytes()
    (tmp_path / "t.safetensors").write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with pytest.raises(StatisticsFileError, match="follow the teacher again"):
        Trajectory.load(tmp_path / "t.safetensors")


def test_a_header_of_endless_brackets_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.safetensors"
    estimate_trajectory(mixture(PROCESSES[0]), samples=2).save(path)
    arrays, header = read_arrays(path)
    del header["sha256"]
    write_arrays(path, arrays, {**header, "metadata": "[" * 100_000})
    with pytest.raises(StatisticsFileError, match="not a valid trajectory file"):
        Trajectory.load(path)


def test_an_interrupted_teacher_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = estimate_trajectory(mixture(PROCESSES[0]), samples=7, batch_size=2, probes=5)
    follow, calls = module._follow, []

    def interrupted(denoiser: Any, plan: Any, batch: tuple[int, int], conditioning: Any, **others: Any) -> Any:
        calls.append(batch)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return follow(denoiser, plan, batch, conditioning, **others)

    monkeypatch.setattr(module, "_follow", interrupted)
    path = tmp_path / "t.safetensors"
    with pytest.raises(KeyboardInterrupt):
        estimate_trajectory(mixture(PROCESSES[0]), samples=7, batch_size=2, probes=5, checkpoint=path)
    again = estimate_trajectory(mixture(PROCESSES[0]), samples=7, batch_size=5, probes=5, checkpoint=path)
    assert calls == [(0, 2), (2, 2), (4, 2), (4, 3)]
    assert np.allclose(again.deviation, whole.deviation, rtol=1e-10, atol=1e-13)
    assert np.allclose(again.amplification, whole.amplification, rtol=1e-10)
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.safetensors"]
    estimate_trajectory(mixture(PROCESSES[0]), samples=7, probes=5, checkpoint=path)
    assert len(calls) == 4
    with pytest.raises(OtherWorkError, match="seed"):
        estimate_trajectory(mixture(PROCESSES[0]), samples=7, seed=1, probes=5, checkpoint=path)


def test_batches_are_as_small_as_memory_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = estimate_trajectory(mixture(PROCESSES[0]), samples=7)
    follow, counts = module._follow, []

    def counted(denoiser: Any, plan: Any, batch: tuple[int, int], conditioning: Any, **others: Any) -> Any:
        counts.append(batch[1])
        return follow(denoiser, plan, batch, conditioning, **others)

    monkeypatch.setattr(module, "_follow", counted)
    # Two float64 tables of 14 grid points and 3 dims per sample are 672 bytes: three samples fit into 2,100.
    monkeypatch.setattr(module, "STATE_BYTES", 2100)
    found = estimate_trajectory(mixture(PROCESSES[0]), samples=7)
    assert counts == [3, 3, 1]
    assert np.allclose(found.deviation, whole.deviation, rtol=1e-10, atol=1e-13)


def test_bad_requests_are_refused() -> None:
    denoiser = mixture(PROCESSES[0])
    with pytest.raises(ValueError, match="samples must be a whole number of at least 1, not 0"):
        estimate_trajectory(denoiser, samples=0)
    with pytest.raises(ValueError, match="kept must be a number of grid points"):
        estimate_trajectory(denoiser, kept=0)
    one = estimate_trajectory(denoiser, samples=1, paired=0, probes=0)
    with pytest.raises(ValueError, match="paired=0"):
        trajectory_costs(one, "dpmpp_2m")
    with pytest.raises(ValueError, match="end points that differ"):
        trajectory_costs(one, weight="gaussian")
    with pytest.raises(ValueError, match="probes=8"):
        trajectory_costs(one)
    with pytest.raises(ValueError, match="sampler must be one of 'ddim', 'dpmpp_2m', not 'heun'"):
        trajectory_costs(one, "heun")  # type: ignore[arg-type]


# --- the sampler with memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.name)
def test_dpm_solver_samples_follow_its_formula(process: ForwardProcess) -> None:
    denoiser, f, g = mixture(process), process.f, process.g
    path = (process.T, process.T - 2, 4, 3, 1, 0)
    x = standard_normal(5, "prior", 0, 0, 6, (3,)).numpy()
    last = h_last = None
    for t, s in itertools.pairwise(path):
        x0_hat = denoiser(torch.from_numpy(x), t).x0_hat.numpy()
        if s == 0:
            x = x0_hat
            break
        with np.errstate(divide="ignore"):
            h = np.log(f[s] / g[s]) - np.log(f[t] / g[t])
        D = x0_hat if last is None else x0_hat + 0.5 * h / h_last * (x0_hat - last)
        x = g[s] / g[t] * x - f[s] * np.expm1(-h) * D
        last, h_last = x0_hat, h
    found = sample(denoiser, Schedule(process, path), n=6, seed=5, sampler="dpmpp_2m", batch_size=4)
    assert np.allclose(found.numpy(), x, rtol=1e-6, atol=1e-6)


def test_dpm_solver_is_of_second_order() -> None:
    """Against the exact solution of the flow for Gaussian data, x_0 = x_T sqrt(v/(f_T² v + g_T²))."""
    process, v = ForwardProcess.vp_linear(times=np.linspace(0.0, 1.0, 4097) ** 2), 0.3
    denoiser = gaussian_denoiser(process, np.zeros(1), np.full(1, v), time_input="time")
    x = standard_normal(0, "prior", 0, 0, 4, (1,)).numpy()
    # The last step, of first order, ends at x̂_0: start from a grid whose first time is small.
    exact = x * math.sqrt(v / (process.f[-1] ** 2 * v + process.g[-1] ** 2))
    errors = {}
    for K in (32, 64, 128):
        for sampler in ("ddim", "dpmpp_2m"):
            ends = sample(denoiser, even_stride(process, K), n=4, seed=0, sampler=sampler).numpy()  # type: ignore[arg-type]
            errors[sampler, K] = np.abs(ends / exact - 1.0).max()
    assert errors["ddim", 32] / errors["ddim", 128] < 6.0
    assert errors["dpmpp_2m", 32] / errors["dpmpp_2m", 128] > 8.0
    assert errors["dpmpp_2m", 128] < 0.1 * errors["ddim", 128]
