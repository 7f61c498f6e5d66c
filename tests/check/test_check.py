"""`check` names wrong descriptions, accuses no right one, and leaves the network as it was."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from exact import COSINE, FLOW, LINEAR, TRUTHS, T, Truth, images
from torch import Tensor, nn

import dpstride
from dpstride import Denoiser, ForwardProcess, check
from dpstride.checking.compare import area
from dpstride.checking.kinds import CHANGES
from dpstride.checking.kinds.processes import scaled_linear
from dpstride.zoo.mixture import mixture_data, mixture_denoiser

DATA = images("cifar-test")


def checked(truth: Truth, seed: int = 0, data: Tensor = DATA, data_range: Any = None, **wrong: Any) -> dpstride.Check:
    return check(truth.denoiser(**wrong), data, seed=seed, data_range=data_range or truth.data_range, progress=False)


# --- right ones --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", TRUTHS)
def test_no_right_description_is_accused(name: str, seed: int) -> None:
    found = checked(TRUTHS[name], seed)
    assert found.verdict == "fits", found.sentence
    assert found.ok
    assert found.changes == ()
    assert found.area < found.gaussian  # it knows correlations, which the reference does not


def test_a_thinned_grid_and_a_continuous_one_fit_too() -> None:
    truth = TRUTHS["eps, linear"]
    assert checked(truth, process=LINEAR.subset(range(0, T + 1, 3))).ok
    flow = TRUTHS["flow"].denoiser(time_input="time", trained_continuous=True)
    finer = flow.on_grid(ForwardProcess.rectified_flow(times=np.linspace(0.0, 1.0, 90) ** 2))
    assert check(finer, DATA, data_range="uint8", progress=False).ok


def test_an_exact_denoiser_of_white_gaussian_data_is_not_called_untrained() -> None:
    """Its error is that of the reference itself: nothing can be known but mean and variance."""
    data = 0.3 * torch.randn(512, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    f, g = torch.tensor(COSINE.f), torch.tensor(COSINE.g)

    def network(x: Tensor, time: Tensor) -> Tensor:
        f_t, g_t = f[time + 1][:, None], g[time + 1][:, None]
        return 0.09 * f_t / (0.09 * f_t**2 + g_t**2) * x

    found = check(Denoiser(network, COSINE, predicts="x0", clip=None), data, data_range="continuous", progress=False)
    assert found.verdict == "fits"
    assert found.area == pytest.approx(found.gaussian, rel=0.1)


# --- wrong ones --------------------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[str, dict[str, Any], tuple[str, ...]]] = {
    "v for eps": ("eps, linear", {"predicts": "v"}, ("predicts='eps'",)),
    "x0 for eps": ("eps, linear", {"predicts": "x0"}, ("predicts='eps'",)),
    "flow for eps": ("eps, linear", {"predicts": "flow"}, ("predicts='eps'",)),
    "eps for x0": ("x0, cosine", {"predicts": "eps"}, ("predicts='x0'",)),
    "eps for v": ("v, cosine, time in (0, 1]", {"predicts": "eps"}, ("predicts='v'",)),
    "v for flow": ("flow", {"predicts": "v"}, ("predicts='flow'",)),
    "cosine for linear": ("eps, linear", {"process": COSINE}, ("linear process",)),
    "scaled linear for linear": ("eps, linear", {"process": scaled_linear(T)}, ("linear process",)),
    "linear for cosine": ("x0, cosine", {"process": LINEAR}, ("cosine process",)),
    "cosine for flow": ("flow", {"process": COSINE}, ("flow process",)),
    "time reversed": ("eps, linear", {"time_input": lambda i: T - i}, ("time reversed",)),
    "time in (0, 1] for index0": (
        "x0, cosine",
        {"time_input": lambda i: i / T},
        ("time as index0, a float", "time as index0"),
    ),
    "index0 for time in (0, 1]": ("flow", {"time_input": "index0"}, ("time in (0, 1]",)),
    "time in (0, 1000]": ("flow", {"time_input": lambda i: 1000.0 * i / T}, ("time in (0, 1]",)),
    "[-1, 1] for [0, 1]": ("eps, linear, data in [0, 1]", {"data_range": "uint8"}, ("data in [0, 1]",)),
    "[0, 1] for [-1, 1]": ("x0, cosine", {"data_range": ("levels", 256, 0.0, 1.0)}, ("data in [-1, 1]",)),
    "0 to 255 for [-1, 1]": ("x0, cosine", {"data_range": ("levels", 256, 0.0, 255.0)}, ("data in [-1, 1]",)),
    "BGR": ("eps, linear", {"data": DATA.flip(1)}, ("channels in reverse order (BGR)",)),
    "rows and columns": ("eps, linear", {"data": DATA.transpose(2, 3)}, ("rows and columns exchanged",)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_description_is_named_with_its_remedy(name: str) -> None:
    truth, wrong, remedies = WRONG[name]
    found = checked(TRUTHS[truth], **wrong)
    assert found.verdict == "better"
    assert len(found.changes) == 1, found.changes
    assert found.changes[0] in remedies
    assert found.gain > 2 * found.gain_error > 0.0
    assert found.level is not None
    assert found.level.best < found.level.declared
    assert found.changes[0] in str(found)


def test_a_description_that_shares_no_noise_level_with_the_right_one_is_told() -> None:
    """Of data declared 255 times too large even T hides little; the network is worse than none wherever it is looked at."""
    found = checked(TRUTHS["eps, scaled linear, data in [0, 1]"], data_range=("levels", 256, 0.0, 255.0))
    assert found.changes == ("data in [0, 1]",), found.sentence
    assert found.gain > 1.0
    assert found.level is None  # no noise level to compare at


@pytest.mark.parametrize("predicts", ["v", "flow", "eps"])
def test_the_sign_of_the_output_is_told(predicts: str) -> None:
    found = checked(Truth(COSINE, predicts, sign=-1.0))
    assert found.changes == (f"predicts='{predicts}' of the opposite sign",)


def test_three_mistakes_at_once_are_found() -> None:
    wrong = {"predicts": "flow", "process": FLOW, "time_input": lambda i: i / T}
    found = checked(TRUTHS["eps, linear"], **wrong)
    assert set(found.changes) >= {"predicts='eps'", "linear process"}
    assert any(change.startswith("time as index0") for change in found.changes)


def test_swapped_halves_of_a_learned_variance_are_told() -> None:
    network = TRUTHS["eps, linear"].network()

    def swapped(x: Tensor, time: Tensor) -> Tensor:
        return torch.cat([torch.zeros_like(x), network(x, time)], dim=1)

    found = check(Denoiser(swapped, LINEAR, variance="learned_range", clip=None), DATA, progress=False)
    assert found.changes == ("predicts='eps' in the second half of the channels",)


# --- untrained ones ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("predicts", ["eps", "x0", "v", "flow"])
def test_an_untrained_network_is_called_that(predicts: Any) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.SiLU(), nn.Conv2d(16, 3, 3, padding=1))
    denoiser = Denoiser(lambda x, time: layers(x.float()), COSINE, predicts=predicts)
    found = check(denoiser, DATA, progress=False)
    assert found.verdict == "untrained"
    assert "untrained" in found.sentence
    assert found.changes == ()


def test_of_a_network_that_knows_only_means_and_variances_it_is_said_how_it_is_used_best() -> None:
    """Exact for white data, so untrained beside the Gaussian reference, and yet misused."""
    data = 0.3 * torch.randn(512, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    f, g = torch.tensor(COSINE.f), torch.tensor(COSINE.g)

    def network(x: Tensor, time: Tensor) -> Tensor:
        f_t, g_t = f[time + 1][:, None], g[time + 1][:, None]
        return g_t / (0.09 * f_t**2 + g_t**2) * x

    found = check(Denoiser(network, COSINE, predicts="x0", clip=None), data, data_range="continuous", progress=False)
    assert found.verdict == "untrained"
    assert found.tried[0].label == "predicts='eps'"
    assert f"Of these, predicts='eps' fits it best, by {-found.tried[0].bits_per_dim:.3g} bits/dim." in found.sentence


def test_a_network_that_returns_zero_is_called_untrained() -> None:
    found = check(Denoiser(lambda x, time: torch.zeros_like(x), LINEAR), DATA, progress=False)
    assert found.verdict == "untrained"


# --- the network is left alone -------------------------------------------------------------------------------------------


class Moody(nn.Module):
    """An exact network beside a batch normalisation, whose statistics training mode would change, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.dropout = nn.BatchNorm2d(3), nn.Dropout(0.5)
        self.exact = TRUTHS["eps, linear"].network()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        return self.exact(x, time) + 0.0 * self.norm(x.float()) + (self.dropout(torch.ones_like(x)) - 1.0)


def test_training_mode_is_tried_and_everything_put_back() -> None:
    network = Moody()
    denoiser = Denoiser(network, LINEAR, clip=None)
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.random.get_rng_state()
    found = check(denoiser, DATA, progress=False)
    assert found.ok
    cost = next(each for each in found.tried if each.label == "network in training mode")
    assert cost.bits_per_dim > 0.1  # dropout was on
    assert not any(part.training for part in network.modules())
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), state)


class Counting(nn.Module):
    """An exact network that changes itself in training mode, in every way that a module keeps something."""

    def __init__(self) -> None:
        super().__init__()
        self.exact, self.scale, self.past, self.sums = TRUTHS["eps, linear"].network(), 1.0, [1.0], {"a": 1.0}
        self.register_buffer("average", torch.ones(()))
        self.plain = torch.ones(())

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        if self.training:
            self.scale *= 0.9
            self.average = 0.9 * self.average  # another tensor, not the same one with other numbers
            self.plain.mul_(0.9)
            self.past.append(0.9)
            self.sums["a"] = 0.5
            self.new = 0.5
        factor = self.scale * self.average * self.plain * self.past[-1] * self.sums["a"] * getattr(self, "new", 1.0)
        return self.exact(x, time) * factor


@pytest.mark.attack("networks that misbehave quietly")
def test_a_network_that_changes_itself_in_training_mode_is_put_back() -> None:
    """`find` went on with what the check had made of it."""
    network = Counting()
    denoiser = Denoiser(network, LINEAR, clip=None)
    x, time = torch.ones(2, *DATA.shape[1:]), torch.tensor([1, 40])
    before, fingerprint = denoiser.response(x, time), denoiser.fingerprint
    assert check(denoiser, DATA, progress=False).ok
    assert torch.equal(denoiser.response(x, time), before)
    assert denoiser.fingerprint == fingerprint
    assert (network.scale, network.past, network.sums) == (1.0, [1.0], {"a": 1.0})
    assert not hasattr(network, "new")


@pytest.mark.attack("networks that misbehave quietly")
def test_a_network_that_refuses_another_time_at_the_ends_alone_is_checked() -> None:
    """The first look leaves the ends out, where a time one step earlier is none that it knows."""
    inner = TRUTHS["eps, linear"].network()

    def network(x: Tensor, time: Tensor) -> Tensor:
        assert (time >= 1).all(), "time begins at 1"
        return inner(x, time - 1)

    found = check(Denoiser(network, LINEAR, clip=None, time_input=lambda i: i), DATA, progress=False)
    assert found.ok
    assert "time begins at 1" in found.refused["time one step earlier"]


def test_what_the_network_refuses_is_listed() -> None:
    inner = TRUTHS["eps, linear"].network()

    def network(x: Tensor, time: Tensor) -> Tensor:
        if time.is_floating_point():
            raise TypeError("whole numbers only")
        return inner(x, time)

    found = check(Denoiser(network, LINEAR, clip=None), DATA, progress=False)
    assert found.ok
    assert "whole numbers only" in found.refused["time in (0, 1]"]


def test_a_network_that_fails_as_declared_is_an_error() -> None:
    def network(x: Tensor, time: Tensor) -> Tensor:
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        check(Denoiser(network, LINEAR), DATA, progress=False)


def test_whole_times_never_leave_the_declared_range() -> None:
    """An embedding table that is asked for a row it has not stops a GPU."""
    seen: list[int] = []
    inner = TRUTHS["eps, linear"].network()

    def network(x: Tensor, time: Tensor) -> Tensor:
        if not time.is_floating_point():
            seen.extend(time.tolist())
        return inner(x, time)

    check(Denoiser(network, LINEAR, clip=None), DATA, progress=False)
    assert min(seen) >= 0
    assert max(seen) <= T - 1


# --- numbers -------------------------------------------------------------------------------------------------------------


def test_the_area_is_that_of_a_gaussian_in_closed_form() -> None:
    """For N(0, v) the error is snr v/(1 + snr v), whose integral over log-SNR is ln(1 + snr v)."""
    log_snr, v = np.linspace(-5.0, 9.0, 2001), 0.3
    errors = (np.exp(log_snr) * v / (1.0 + np.exp(log_snr) * v))[:, None]
    exact = 0.5 * (math.log1p(v * math.exp(9.0)) - math.log1p(v * math.exp(-5.0))) / math.log(2.0)
    assert area(log_snr, errors, log_snr)[0] == pytest.approx(exact, rel=1e-5)


def test_errors_above_those_of_no_network_count_as_such() -> None:
    log_snr = np.linspace(0.0, 2.0, 5)
    assert area(log_snr, np.full((5, 1), 700.0), log_snr)[0] == pytest.approx(0.5 * 2.0 / math.log(2.0))


def test_the_outcome_depends_on_the_seed_alone() -> None:
    truth = TRUTHS["eps, linear"]
    first, second = (
        check(truth.denoiser(predicts="v"), DATA, seed=3, batch_size=size, progress=False).to_dict()
        for size in (64, 17)
    )
    assert first["gain"] == pytest.approx(second["gain"], rel=1e-9)
    assert first["evaluations"] == second["evaluations"]
    assert first["changes"] == second["changes"]


def test_few_samples_are_used_with_several_noises() -> None:
    found = checked(TRUTHS["eps, linear"], data=DATA[:6], predicts="x0")
    assert found.changes == ("predicts='eps'",)


@pytest.mark.parametrize("seed", range(3))
def test_samples_of_few_dimensions_are_as_many_as_it_takes(seed: int) -> None:
    """One step late costs the exact mixture of 16 dimensions 0.05 bits/dim, which 128 samples tell from nothing by chance."""
    right = mixture_denoiser()
    last = right.process.T - 1
    late = Denoiser(right.network, right.process, predicts=right.predicts, time_input=lambda i: min(i, last))
    found = check(late, mixture_data(512, seed=1), seed=seed, progress=False)
    assert found.changes == ("time one step earlier",), found.sentence
    assert check(right, mixture_data(512, seed=1), seed=seed, progress=False).ok


def test_noise_that_the_network_does_not_know_is_noted() -> None:
    """Off by 0.1 everywhere, x̂_0 has an implied noise off by 0.01 snr: far above 1 next to clean data only."""
    truth = TRUTHS["x0, cosine"]
    network = truth.network()
    found = check(Denoiser(lambda x, time: network(x, time) + 0.1, COSINE, predicts="x0"), DATA, progress=False)
    assert any("worse than no network" in note for note in found.notes)
    assert checked(truth).notes == ()


def test_every_change_says_what_to_do() -> None:
    assert all(change.label and change.remedy and change.kind for change in CHANGES)
    assert len({change.label for change in CHANGES}) == len(CHANGES)


def test_a_process_of_noise_alone_is_refused() -> None:
    """alpha_bar given as betas: the first step is noise already."""
    process = ForwardProcess.from_alpha_bar(np.geomspace(1e-3, 1e-9, 50))
    with pytest.raises(ValueError, match="betas and alpha_bar are easily exchanged"):
        check(Denoiser(lambda x, time: x, process), DATA, progress=False)


# --- trained ones --------------------------------------------------------------------------------------------------------
