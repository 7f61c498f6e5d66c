"""Schedules going out: each convention against its own definition, and the diffusers schedulers that take the lists."""

from __future__ import annotations

import csv
import io
import json
import math
import re

import diffusers
import numpy as np
import pytest
import torch
from click.testing import CliRunner

import dpstride
from dpstride.cli import _run
from dpstride.integrations.command import export_command
from dpstride.integrations.export import sigmas, timestep_respacing, to_csv

# diffusers makes numpy arrays of tensors in a way that numpy 2 deprecates.
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation doesn't accept a copy keyword:DeprecationWarning"
)

PATH = (1000, 700, 333, 40, 8, 0)


@pytest.fixture
def schedule():
    return dpstride.Schedule(dpstride.ForwardProcess.linear(1000), PATH)


@pytest.fixture
def flow():
    times = 3.0 * np.linspace(0, 1, 11) / (1.0 + 2.0 * np.linspace(0, 1, 11))
    return dpstride.Schedule(dpstride.ForwardProcess.rectified_flow(times=times), (10, 7, 3, 1, 0))


def test_timesteps_are_training_steps_counted_from_0(schedule):
    assert schedule.for_diffusers() == [999, 699, 332, 39, 7]
    thinned = schedule.process.subset([8, 40, 333, 700, 1000])
    assert dpstride.Schedule(thinned, (5, 3, 1, 0)).for_diffusers() == [999, 332, 7]


@pytest.mark.parametrize("kind", ["DDPMScheduler", "DPMSolverMultistepScheduler"])
def test_diffusers_schedulers_take_the_timesteps(schedule, kind):
    scheduler = getattr(diffusers, kind)(1000)
    scheduler.set_timesteps(timesteps=schedule.for_diffusers(scheduler))
    assert scheduler.timesteps.tolist() == [999, 699, 332, 39, 7]


def test_ddpm_walks_exactly_the_path(schedule):
    scheduler = diffusers.DDPMScheduler(1000)
    scheduler.set_timesteps(timesteps=schedule.for_diffusers())
    walked = [int(scheduler.previous_timestep(t)) for t in scheduler.timesteps]
    assert walked == [step - 1 for step in PATH[1:]]


def test_euler_sigmas_are_those_of_the_path(schedule):
    scheduler = diffusers.EulerDiscreteScheduler(1000)
    scheduler.set_timesteps(sigmas=schedule.for_diffusers(scheduler))
    alpha_bar = np.cumprod(1.0 - np.linspace(1e-4, 0.02, 1000))[np.array(PATH[:-1]) - 1]
    expected = np.append(np.sqrt((1.0 - alpha_bar) / alpha_bar), 0.0)
    np.testing.assert_allclose(scheduler.sigmas.numpy(), expected, rtol=1e-6)
    # Its own table is float32, so the network is fed the path's training steps to that precision.
    np.testing.assert_allclose(scheduler.timesteps.numpy(), np.array(PATH[:-1]) - 1, atol=0.02)


@pytest.mark.parametrize(
    ("configuration", "mu"),
    [
        ({"shift": 3.0}, None),
        ({"shift": 1.0}, None),
        ({"use_dynamic_shifting": True}, 0.8),
        ({"use_dynamic_shifting": True, "time_shift_type": "linear"}, 1.7),
    ],
)
def test_flow_match_scheduler_ends_up_with_the_paths_sigmas(flow, configuration, mu):
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(**configuration)
    scheduler.set_timesteps(sigmas=flow.for_diffusers(scheduler, mu=mu), mu=mu)
    np.testing.assert_allclose(scheduler.sigmas.numpy(), flow.times, rtol=1e-6, atol=1e-7)
    assert flow.for_diffusers() == list(flow.times[:-1])


def test_schedulers_that_would_be_silently_wrong_are_refused(schedule, flow):
    for kind in ("DDIMScheduler", "PNDMScheduler", "EulerAncestralDiscreteScheduler", "UniPCMultistepScheduler"):
        with pytest.raises(ValueError, match="takes no timesteps"):
            schedule.for_diffusers(getattr(diffusers, kind)())
    with pytest.raises(ValueError, match="does not sample"):
        flow.for_diffusers(diffusers.DDPMScheduler())
    with pytest.raises(ValueError, match="samples a rectified flow"):
        schedule.for_diffusers(diffusers.FlowMatchEulerDiscreteScheduler())
    with pytest.raises(ValueError, match="shifts its sigmas by mu"):
        flow.for_diffusers(diffusers.FlowMatchEulerDiscreteScheduler(use_dynamic_shifting=True))
    with pytest.raises(ValueError, match="shift_terminal"):
        flow.for_diffusers(diffusers.FlowMatchEulerDiscreteScheduler(shift_terminal=0.1))


def test_k_diffusion_sigmas_end_at_0(schedule, flow):
    found = schedule.for_k_diffusion()
    assert found.dtype == torch.float32
    assert found[-1] == 0.0
    snr = schedule.process.snr[list(PATH[:-1])]
    np.testing.assert_allclose(found[:-1].numpy(), 1.0 / np.sqrt(snr), rtol=1e-6)
    ve = dpstride.Schedule(dpstride.ForwardProcess.ve([0.0, 0.1, 1.0, 50.0]), (3, 1, 0))
    np.testing.assert_allclose(ve.for_k_diffusion().numpy(), [50.0, 0.1, 0.0], rtol=1e-6)
    with pytest.raises(ValueError, match="not a rectified flow"):
        flow.for_k_diffusion()
    ends = dpstride.Schedule(dpstride.ForwardProcess.vp_cosine(10), (10, 4, 0))
    with pytest.raises(ValueError, match="infinite"):
        ends.for_k_diffusion()
    with pytest.raises(ValueError, match="no training steps"):
        ends.for_diffusers()


def read_by_comfyui(text):
    """ManualSigmas' rule: every match of its pattern is a number, in single precision."""
    return np.array([float(number) for number in re.findall(r"[-+]?(?:\d*\.*\d+)", text)], dtype=np.float32)


def test_comfyui_reads_the_noise_levels_however_small(schedule, flow):
    np.testing.assert_array_equal(read_by_comfyui(schedule.for_comfyui()), schedule.for_k_diffusion().numpy())
    small = dpstride.Schedule(dpstride.ForwardProcess.ve([0.0, 1e-7, 1.0, 50.0]), (3, 2, 1, 0))
    np.testing.assert_array_equal(read_by_comfyui(small.for_comfyui()), np.float32([50.0, 1.0, 1e-7, 0.0]))
    np.testing.assert_array_equal(read_by_comfyui(flow.for_comfyui()), np.float32(flow.times))


def test_a1111_is_given_no_list_that_it_rescales(schedule, flow):
    assert json.loads(schedule.for_a1111()) == [*sigmas(schedule), 0.0]
    found = json.loads(flow.for_a1111())
    assert found[-1] == 0.0
    assert found[0] != 1.0  # the extension rescales lists from 1.0 to 0.0
    np.testing.assert_array_equal(np.float32(found), np.float32(flow.times))


def sections(T, counts):
    """improved-diffusion's rule in words: T steps in equal sections (the first ones longer by one); of a section of n
    steps of which c are kept, the kept ones are evenly spaced from its first to its last; c = 1 keeps the first."""
    kept, start = set(), 0
    for i, count in enumerate(counts):
        size = T // len(counts) + (1 if i < T % len(counts) else 0)
        stride = (size - 1) / (count - 1) if count > 1 else 1.0
        kept |= {start + round(j * stride) for j in range(count)}
        start += size
    return kept


def test_improved_diffusion_respacing_keeps_exactly_the_path(schedule):
    assert schedule.for_improved_diffusion() == {7, 39, 332, 699, 999}
    counts = [int(part) for part in timestep_respacing(schedule).split(",")]
    assert sections(1000, counts) == schedule.for_improved_diffusion()


def test_csv_says_what_every_point_is(schedule, flow):
    rows = list(csv.DictReader(io.StringIO(to_csv(schedule))))
    assert [int(row["index"]) for row in rows] == list(PATH)
    assert [int(row["k"]) for row in rows] == [5, 4, 3, 2, 1, 0]
    assert float(rows[2]["f"]) == schedule.process.f[333]
    assert float(rows[-1]["log_snr"]) == math.inf
    assert next(csv.DictReader(io.StringIO(to_csv(flow))))["training_step"] == ""


def run(*arguments):
    return CliRunner().invoke(export_command, [str(argument) for argument in arguments])


def test_command(tmp_path, schedule):
    file = tmp_path / "schedules.json"
    schedule.save(file)
    result = run(file, "--to", "diffusers", "--budget", 5)
    assert json.loads(result.output) == [999, 699, 332, 39, 7]
    assert json.loads(run(file, "--to", "sigmas", "--budget", 5).output) == sigmas(schedule)
    assert json.loads(run(file, "--to", "k-diffusion", "--budget", 5).output) == [*sigmas(schedule), 0.0]
    assert run(file, "--to", "improved-diffusion", "--budget", 5).output.strip() == timestep_respacing(schedule)
    assert run(file, "--to", "comfyui", "--budget", 5).output.strip() == schedule.for_comfyui()
    assert run(file, "--to", "a1111", "--budget", 5).output.strip() == schedule.for_a1111()
    assert json.loads(run(file, "--to", "a1111", "--budget", 5, "--json").output)["value"] == schedule.for_a1111()
    assert run(file, "--to", "csv", "--budget", 5, "-o", tmp_path / "path.csv").output == ""
    assert (tmp_path / "path.csv").read_text() == to_csv(schedule)
    assert run(file, "--to", "json", "--budget", 5, "-o", tmp_path / "one.json").exit_code == 0
    assert dpstride.Schedule.load(tmp_path / "one.json").steps == PATH


def test_command_names_the_users_mistake(tmp_path, schedule, capsys):
    file = tmp_path / "schedules.json"
    schedule.save(file)
    for arguments, message in (
        ((file, "--to", "diffusers", "--budget", 7), "Error: There is no schedule of 7 steps here"),
        ((file, "--to", "comfy", "--budget", 5), "comfy"),
        ((file, "--to", "json", "--budget", 5), "Give -o FILE"),
        ((tmp_path / "none.json", "--to", "csv", "--budget", 5), "does not exist"),
    ):
        assert _run(["export", *map(str, arguments)]) == 2
        said = capsys.readouterr().err
        assert message in said
        assert (
            said.startswith("Error: There") or "Usage" in said
        )  # how to call it helps who called it wrongly, no one else
    file.write_text("{}")
    assert _run(["export", str(file), "--to", "csv", "--budget", "5"]) == 2
