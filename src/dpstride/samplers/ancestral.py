"""Ancestral sampling: x_s from p(x_s given x_t) (Ho et al. 2020, Algorithm 2), with any reverse variance."""

from __future__ import annotations

from typing import Any

from . import InDiffusers, Move, SamplerRule


def step(move: Move) -> tuple[Any, Any]:
    """The mean of p(x_s given x_t), and its variance."""
    a, b = move.process.posterior_mean(move.t, move.s)
    return float(a) * move.x + float(b) * move.x0_hat, move.variance


RULE = SamplerRule(
    words="ancestral",
    step=step,
    takes_variance=True,
    in_diffusers=InDiffusers(
        scheduler="DDPMScheduler",
        takes="timesteps",
        settings={
            "variance_type": '"fixed_small"',
            "clip_sample": 'pipeline.scheduler.config.get("clip_sample", False)',
        },
    ),
)
