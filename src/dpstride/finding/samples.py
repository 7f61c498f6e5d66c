"""The main job for samples in few steps: the best paths over a band of noise levels, for a given sampler.

Statistics, held-out scores, files and page are those of the job for bits/dim; only the cost of paths differs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from .. import samplers
from ..denoiser import Denoiser
from ..objectives.band import DEFAULT, SamplesPlan
from ..options import SAMPLES_VARIANCE
from ..runs.execution import Execution
from . import elbo
from .elbo import evaluations as evaluations, needed as needed, noise_samples as noise_samples, on_grid as on_grid
from .job import Found, Job, Request

USES = ("skip_nonfinite", "sampler", "eta", "exponent", "band", "cap", "evenness")


def plan_of(request: Request) -> SamplesPlan:
    """Return the plan of a request; refuse a bad one before the network runs."""
    low, high = (DEFAULT.low, DEFAULT.high) if request.band is None else request.band
    asked = {name: getattr(request, name) for name in ("exponent", "cap", "evenness")}
    given = {name: value for name, value in asked.items() if value is not None}
    band = replace(DEFAULT, low=low, high=high, **given)
    samplers.check_eta(request.eta, request.sampler)
    return SamplesPlan(band, request.sampler, request.eta)


def options(denoiser: Denoiser, samples: int, request: Request, how: Execution) -> dict[str, Any]:
    """Return the options that results depend on."""
    plan = plan_of(request)
    settled = replace(request, variance=request.variance or SAMPLES_VARIANCE)
    return elbo.options(denoiser, samples, settled, how) | {
        "exponent": plan.band.exponent,
        "band": [plan.band.low, plan.band.high],
        "cap": None if math.isinf(plan.band.cap) else plan.band.cap,
        "evenness": plan.band.evenness,
        "sampler": plan.sampler,
        "eta": plan.eta,
    }


def run(job: Job, overwrite: bool) -> Found:
    """Do the work and write each result as soon as it is ready."""
    return elbo.run(job, overwrite, plan_of(job.request))
