"""Work on statistics that is stopped and gone on with."""

from __future__ import annotations

from dpstride import Denoiser
from small_network import Net

# Ten samples a batch: units of 4 t, so that [1 … 4], [5 … 8] and [9] are done one after the other.
BATCH = 10


class PowerCutError(Exception):
    pass


def network_of(denoiser: Denoiser) -> Net:
    assert isinstance(denoiser.network, Net)
    return denoiser.network


def go_on(denoiser: Denoiser) -> list[list[int]]:
    """No more failures; the batches from now on."""
    network_of(denoiser).before = lambda steps: None
    network_of(denoiser).calls = []
    return network_of(denoiser).calls


def worked_at(calls: list[list[int]]) -> list[int]:
    return sorted({t for call in calls for t in call if len(call) > 2})
