"""The command line, run as a user runs it: a model and data in a folder, verbs that read artefacts and write one."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest

import dpstride
from dpstride.cli import _run
from dpstride.evaluate.comparison import Comparison

MODEL = """
import time
import torch
import dpstride

process = dpstride.ForwardProcess.linear(40)
f, g = torch.tensor(process.f), torch.tensor(process.g)

def network(x, t):
    # The best linear estimate for data of mean 0 and variance 0.1.
    f_t, g_t = f[t + 1].reshape(-1, 1, 1, 1), g[t + 1].reshape(-1, 1, 1, 1)
    return (f_t * 0.1 / (f_t**2 * 0.1 + g_t**2)) * x

def denoiser():
    return dpstride.Denoiser(network, process, predicts="x0", shape=(1, 3, 3), name="linear")

def slow():
    def network_slowly(x, t):
        if int(t[0]) == 9:
            open("reached", "w").close()
        time.sleep(0.05)
        return network(x, t)
    return dpstride.Denoiser(network_slowly, process, predicts="x0", shape=(1, 3, 3))

def broken():
    def network_broken(x, t):
        return torch.where(t.reshape(-1, 1, 1, 1) == 6, float("nan"), network(x, t))
    return dpstride.Denoiser(network_broken, process, predicts="x0", shape=(1, 3, 3))

def not_a_denoiser():
    return 3

def forgetful(weights):
    return denoiser()

def misshapen():
    layer = torch.nn.Linear(7, 7)
    return dpstride.Denoiser(lambda x, t: layer(x.float()), process, predicts="x0", shape=(1, 3, 3))

def unknown():
    return {}["weights"]
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("my_model", None)
    (tmp_path / "my_model.py").write_text(textwrap.dedent(MODEL))
    x = np.random.default_rng(0).normal(0.0, np.sqrt(0.1), (60, 1, 3, 3)).clip(-1.0, 1.0)
    levels = np.round((x + 1.0) * 127.5).astype(np.uint8)
    np.save("data.npy", levels)
    np.save("other.npy", levels[::-1].copy())
    np.save("wide.npy", np.zeros((4, 1, 3, 4), np.uint8))
    (tmp_path / "wrong_code.py").write_text("a = 1\ndef denoiser(:\n")
    yield tmp_path
    sys.modules.pop("my_model", None)  # pages of the documentation have one of their own


def run(capsys, *arguments):
    code = _run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_find_writes_all_artefacts_and_says_how_few_steps_are_enough(folder, capsys):
    code, out, err = run(capsys, "find", "my_model:denoiser", "data.npy", "-o", "out")
    assert code == 0, err
    assert "DP stride" in out
    assert "steps are within 0.1 bits/dim" in out
    assert "30 samples of shape (1, 3, 3) choose the path" in err
    written = {path.name for path in (folder / "out").iterdir()}
    assert written == {
        "statistics.safetensors", "heldout.safetensors", "schedules.json", "comparison.json", "table.txt",
        "bits_per_dim.svg", "bits_per_dim.png", "timesteps.svg", "timesteps.png", "adaptive.json", "report.html", "run.json",
        "check.json", "samples_8_steps.png", "samples_8_steps_even.png", "samples_8_steps_quadratic.png",
    }  # fmt: skip
    schedules = dpstride.ScheduleSet.load("out/schedules.json")
    assert schedules.budgets == list(range(1, 41))
    comparison = Comparison.load("out/comparison.json")
    # What the page says is what direct evaluation gives: same held-out samples, same seed, another route.
    order = np.random.default_rng(0).permutation(60)
    heldout = np.load("data.npy")[order[30:]]
    import my_model

    direct = dpstride.bits_per_dim(my_model.denoiser(), heldout, schedules[8], seed=1)
    assert comparison.curves["dp"][8] == pytest.approx((direct.bpd, direct.standard_error), rel=1e-9)


def test_the_split_is_disjoint_and_seeded(folder, capsys):
    for seed, name in ((0, "a"), (1, "b")):
        assert run(capsys, "find", "my_model:denoiser", "data.npy", "-o", name, "--seed", str(seed), "-q")[0] == 0
    prints = {
        name: [dpstride.Statistics.load(f"{name}/{file}.safetensors").data for file in ("statistics", "heldout")]
        for name in "ab"
    }
    assert prints["a"] != prints["b"]
    assert prints["a"][0] != prints["a"][1]


def test_heldout_data_of_its_own_and_samples(folder, capsys):
    options = ("--heldout", "other.npy", "--samples", "20", "--heldout-samples", "25", "--json")
    code, out, err = run(capsys, "find", "my_model:denoiser", "data.npy", "-o", "out", *options)
    assert code == 0, err
    result = json.loads(out)
    assert set(result) == {"answer", "enough", "bits_per_dim", "best_budget", "warnings", "files"}
    assert dpstride.Statistics.load("out/statistics.safetensors").samples == 20
    assert dpstride.Statistics.load("out/heldout.safetensors").samples == 25


def test_dry_run_counts_and_writes_nothing(folder, capsys):
    command = ("find", "my_model:denoiser", "data.npy", "-o", "out", "--dry-run")
    code, out, _ = run(capsys, *command, "--every-step", "--json")
    assert code == 0
    result = json.loads(out)
    assert result["evaluations"] == 40 * 60 + 12 * 8 * 3  # twelve samples of eight steps along three paths
    assert result["seconds"] > 0.0
    assert not (folder / "out").exists()
    assert "make 2,688 network evaluations" in run(capsys, *command, "--every-step")[1]
    assert "make at most about 2,088 network evaluations" in run(capsys, *command)[1]  # 20 and all 40 times, 30 samples


def test_find_runs_the_network_where_it_matters_and_says_what_it_believes(folder, capsys):
    command = ("find", "my_model:denoiser", "data.npy", "-o", "out", "--budgets", "2,4", "--tolerance", "0.5")
    code, _, err = run(capsys, *command)
    assert code == 0, err
    report = dpstride.AdaptiveReport.load("out/adaptive.json")
    assert report.reached
    assert report.evaluations < 40 * 30 / 2
    assert report.sentence() in err
    statistics = dpstride.Statistics.load("out/statistics.safetensors")
    assert tuple(np.flatnonzero(statistics.evaluated)) == report.steps
    schedules = dpstride.ScheduleSet.load("out/schedules.json")
    assert dpstride.AdaptiveReport.from_dict(schedules.provenance["adaptive"]) == report
    # Held-out data are evaluated where the paths were chosen from, and at a few more times.
    heldout = dpstride.Statistics.load("out/heldout.safetensors")
    assert heldout.evaluated[list(report.steps)].all()
    assert len(report.steps) <= heldout.evaluated.sum() <= 40
    code, _, err = run(capsys, "find", "my_model:denoiser", "data.npy", "-o", "all", "--every-step")
    assert code == 0, err
    assert dpstride.Statistics.load("all/statistics.safetensors").evaluated[1:].all()
    assert not (folder / "all" / "adaptive.json").exists()


def test_estimate_adaptively_from_the_command_line(folder, capsys):
    options = ("--adaptive", "--budgets", "2,4", "--tolerance", "0.5", "--decoder", "optimal", "--json")
    code, out, err = run(capsys, "estimate", "my_model:denoiser", "data.npy", "-o", "s.safetensors", *options)
    assert code == 0, err
    result = json.loads(out)
    report = dpstride.AdaptiveReport.load("s.adaptive.json")
    assert (result["evaluations"], result["reached"]) == (report.evaluations, True)
    assert dpstride.Statistics.load("s.safetensors").evaluated.sum() == len(report.steps) < 40
    code, out, _ = run(capsys, "solve", "s.safetensors", "-o", "schedules.json", "--decoder", "optimal")
    assert code == 0
    assert "--for samples" in out  # an answer about likelihood says so
    code, _, err = run(
        capsys, "estimate", "my_model:denoiser", "data.npy", "-o", "s2", "--adaptive", "--budgets", "8;9"
    )
    assert code == 2
    assert "whole numbers separated by commas" in err


def test_how_the_network_runs_is_asked_for_and_recorded(folder, capsys, monkeypatch):
    asked = []
    as_it_is = dpstride.Denoiser.faster
    monkeypatch.setattr(
        dpstride.Denoiser,
        "faster",
        lambda self, **how: (asked.append(how), as_it_is(self, autocast=how["autocast"]))[1],
    )
    words = ("estimate", "my_model:denoiser", "data.npy", "--samples", "4", "-q")
    run(capsys, *words, "-o", "low", "--autocast", "bfloat16", "--compile")
    run(capsys, *words, "-o", "plain")
    assert [(how["compile"], str(how["autocast"])) for how in asked] == [(True, "torch.bfloat16")]
    assert dpstride.Statistics.load("low").model["autocast"] == "torch.bfloat16"
    assert "autocast" not in dpstride.Statistics.load("plain").model


def test_verb_by_verb_equals_find(folder, capsys):
    assert run(capsys, "estimate", "my_model:denoiser", "data.npy", "-o", "s.safetensors", "--samples", "30")[0] == 0
    assert run(capsys, "estimate", "my_model:denoiser", "other.npy", "-o", "h.safetensors", "--seed", "5")[0] == 0
    options = ("--variance", "optimal", "--decoder", "optimal")
    code, out, err = run(capsys, "solve", "s.safetensors", "-o", "schedules.json", *options, "--json")
    assert code == 0, err
    assert json.loads(out)["budgets"] == 40
    code, out, err = run(capsys, "evaluate", "schedules.json", "--statistics", "h.safetensors", "-k", "8", "--json")
    assert code == 0, err
    from_statistics = json.loads(out)["bits_per_dim"]
    code, out, err = run(
        capsys, "evaluate", "schedules.json", "--model", "my_model:denoiser", "--data", "other.npy", "-k", "8",
        "--seed", "5", "--json",
    )  # fmt: skip
    assert code == 0, err
    direct = json.loads(out)["bits_per_dim"]
    for stride in ("even", "quadratic", "dp"):
        assert direct[stride]["8"]["bpd"] == pytest.approx(from_statistics[stride]["8"]["bpd"], rel=1e-9)


def test_sample_writes_a_grid_and_arrays(folder, capsys):
    assert run(capsys, "find", "my_model:denoiser", "data.npy", "-o", "out", "-q")[0] == 0
    for name in ("grid.png", "samples.npz", "samples.npy"):
        code, _, err = run(
            capsys, "sample", "my_model:denoiser", "out/schedules.json", "-k", "4", "-n", "5", "-o", name
        )
        assert code == 0, err
    from PIL import Image

    with Image.open("grid.png") as image:
        assert image.size == (3 * 64 - 1, 2 * 64 - 1)  # of 3 × 3 pixels, 21 times enlarged
    samples = np.load("samples.npy")
    assert samples.shape == (5, 1, 3, 3)
    with np.load("samples.npz") as archive:
        assert archive["images"].shape == (5, 3, 3, 1)
    import my_model

    schedule = dpstride.ScheduleSet.load("out/schedules.json")[4]
    np.testing.assert_array_equal(samples, dpstride.sample(my_model.denoiser(), schedule, n=5).numpy())


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["find", "nowhere:denoiser", "data.npy", "-o", "out"], 2, "the module 'nowhere' cannot be imported"),
        (["find", "my_model:nothing", "data.npy", "-o", "out"], 2, "has no function 'nothing'"),
        (["find", "my_model:denoisr", "data.npy", "-o", "out"], 2, "Did you mean my_model:denoiser?"),
        (["find", "my_model:process", "data.npy", "-o", "out"], 2, "'process' is a ForwardProcess, not a function"),
        (["find", "my_model.py:denoiser", "data.npy", "-o", "out"], 2, "without .py: my_model:denoiser"),
        (["find", "./my_modl", "data.npy", "-o", "out"], 2, "there is no such folder"),
        (["find", "my_model:forgetful", "data.npy", "-o", "out"], 2, "missing a required argument: 'weights'"),
        (
            ["find", "my_model:unknown", "data.npy", "-o", "out"],
            1,
            "KeyError: 'weights' (in unknown, my_model.py, line 41)",
        ),
        (
            ["find", "my_model:misshapen", "data.npy", "-o", "out"],
            1,
            "7x7) (in <lambda>, my_model.py, line",
        ),
        (
            ["find", "my_model:denoiser", "data.npy", "--heldout", "wide.npy", "-o", "out"],
            2,
            "but --heldout has (1, 3, 4)",
        ),
        (["find", "wrong_code:denoiser", "data.npy", "-o", "out"], 1, "(in wrong_code.py, line 2)"),
        (["find", "my_model:not_a_denoiser", "data.npy", "-o", "out"], 2, "must return a dpstride.Denoiser"),
        (["find", "my_model:denoiser", "missing.npy", "-o", "out"], 2, "neither a file nor a folder"),
        (["find", "my_model:denoiser", "data.npy", "-o", "out", "--max-budget", "41"], 2, "between 1 and T = 40"),
        (
            ["find", "my_model:denoiser", "data.npy", "-o", "out", "--samples", "60"],
            2,
            "must have 61 samples, as asked for",
        ),
        (["find", "my_model:denoiser", "data.npy", "-o", "out", "--variance", "learned_range"], 2, "with a learned"),
        (["find", "my_model:denoiser", "data.npy", "-o", "out", "--data-range", "9"], 2, "n:low:high"),
        (["find", "my_model:denoiser", "data.npy"], 2, "--output"),
        (["find", "my_model:broken", "data.npy", "-o", "out", "-q"], 1, "at grid step t = 7"),
        (["evaluate", "schedules.json"], 2, "does not exist"),
        (["solve", "data.npy", "-o", "s.json"], 2, "not a whole safetensors file"),
        (["nonsense"], 2, "No such command"),
    ],
)
def test_a_mistake_is_one_message_and_no_traceback(folder, capsys, arguments, code, text):
    found, out, err = run(capsys, *arguments)
    assert found == code
    assert text in err
    assert "Traceback" not in err
    assert not out


def test_rows_done_before_the_network_broke_are_kept(folder, capsys):
    assert (
        run(capsys, "find", "my_model:broken", "data.npy", "-o", "out", "-q", "--every-step", "--batch-size", "4")[0]
        == 1
    )
    with pytest.raises(dpstride.StatisticsFileError, match="not complete; run the same command again"):
        dpstride.Statistics.load("out/statistics.safetensors")


def test_interrupt_keeps_the_work_and_exits_130(folder, capsys):
    # The command as a process, stopped by the signal of Ctrl-C, then run again to its end.
    command = [sys.executable, "-m", "dpstride", "estimate", "my_model:slow", "data.npy", "-o", "s.safetensors"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}
    command += ["--samples", "8", "--batch-size", "8"]
    # A shell that runs the tests in the background has its children ignore Ctrl-C.
    hear = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, **hear)
    while not (folder / "reached").exists():
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Interrupted" in err
    with pytest.raises(dpstride.StatisticsFileError, match="not complete"):
        dpstride.Statistics.load("s.safetensors")
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert finished.returncode == 0, finished.stderr
    import my_model

    undisturbed = dpstride.estimate(my_model.slow(), np.load("data.npy"), samples=8, batch_size=8)
    resumed = dpstride.Statistics.load("s.safetensors")
    np.testing.assert_array_equal(resumed.squared_error, undisturbed.squared_error)
    np.testing.assert_array_equal(resumed.residual_bins.moments, undisturbed.residual_bins.moments)


@pytest.mark.parametrize("verb", ["find", "demo", "estimate", "solve", "evaluate", "sample"])
def test_every_verb_has_help_with_an_example(capsys, verb):
    code, out, _ = run(capsys, verb, "--help")
    assert code == 0
    assert "Example" in out
    assert f"dpstride {verb}" in out


def test_help_is_instant():
    # Instant means that nothing heavy is imported, whatever this machine's speed.
    heavy = ("torch", "numba", "scipy", "matplotlib", "diffusers")
    code = (
        f"import sys; from dpstride.cli import _run; _run(['--help']); print([m for m in {heavy} if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip().endswith("[]")


def test_demo_of_the_mixture(tmp_path, capsys, monkeypatch):
    # The demo itself, on a shorter process so that it takes a second.
    from dpstride.zoo import mixture

    monkeypatch.setattr(mixture, "mixture_denoiser", lambda T=60, make=mixture.mixture_denoiser: make(T))
    code, out, err = run(capsys, "demo", "mixture", "-o", str(tmp_path / "demo"))
    assert code == 0, err
    assert "within 0.1 bits/dim" in out
    assert (tmp_path / "demo" / "schedules.json").is_file()
    for name in ("bits_per_dim.png", "samples_32_steps.png"):
        assert (tmp_path / "demo" / name).read_bytes().startswith(b"\x89PNG")


def test_demo_of_the_embedded_model(tmp_path, capsys, monkeypatch):
    # The real network and images, on every hundredth of its steps and few images, so that it takes seconds.
    from dpstride import zoo
    from dpstride.cli import demo

    thinned = zoo.load("fashion-simple")
    thinned = thinned.on_grid(thinned.process.subset(range(100, 1001, 100)))
    monkeypatch.setattr(zoo, "load", lambda name: thinned)
    monkeypatch.setattr(demo, "DEMO_SAMPLES", (2, 2))
    code, out, err = run(capsys, "demo", "-o", str(tmp_path / "demo"))
    assert code == 0, err
    assert "fashion-simple" in err
    assert "within 0.1 bits/dim" in out
    assert (tmp_path / "demo" / "samples_10_steps.png").is_file()
