"""The paper's training objectives, one file each: the required outputs of the network, and the loss per sample at its own t.

They differ in the target, the weight of each t, and whether the variance is learned too. A file defines ``SETTING``; its name
is listed in `dpstride.options` and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from torch import Tensor

from dpstride.options import TRAINING_OBJECTIVES, TrainingObjective, check_choice
from dpstride.process import ForwardProcess

from .terms import Coefficients, NoisedBatch, Setting

Network = Callable[[Tensor, Tensor], Tensor]


def setting_of(objective: TrainingObjective) -> Setting:
    """The `Setting` of an objective, or an error that lists the objectives."""
    check_choice("objective", objective, TRAINING_OBJECTIVES)
    found: Setting = import_module(f".{objective}", __name__).SETTING
    return found


def sample_losses(
    network: Network,
    process: ForwardProcess,
    objective: TrainingObjective,
    x0: Tensor,
    t: Tensor,
    eps: Tensor,
) -> Tensor:
    """Loss of every sample at its own t.

    Args:
        network: callable of (x_t, time input); returns C channels, or 2C with learned variance.
        process: noise law, of the kind that the objective needs.
        objective: name of the loss.
        x0: clean data in [-1, 1], [B, C, ...].
        t: grid indices 1..T, or times in (0, 1], [B].
        eps: standard normal noise, shaped as x0.

    Returns:
        Losses [B], whose mean over uniform t is the objective. L_vlb is in bits/dim of the whole chain without the prior:
        T times the term at t.
    """
    setting = setting_of(objective)
    if process.kind != setting.kind:
        raise ValueError(
            f"Objective {objective!r} needs a {setting.kind} process, but {process.name!r} is {process.kind}. Use "
            f"ForwardProcess.{setting.process}(), or another objective."
        )
    batch = NoisedBatch(x0, eps, Coefficients.at(process, t), process.T)
    output = network(batch.x_t, batch.at.time_input)
    channels = x0.shape[1] * (2 if setting.learned_variance else 1)
    if output.shape[1] != channels:
        raise ValueError(
            f"Objective {objective!r} needs a network with {channels} output channels, but it returned "
            f"{output.shape[1]}. Build it with out_channels={channels}."
        )
    return setting.losses(output, batch)
