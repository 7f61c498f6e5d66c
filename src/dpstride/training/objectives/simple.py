"""L_simple (Ho et al. 2020, Eq. 14): the squared error of the noise."""

from __future__ import annotations

from .terms import Setting, squared_error

SETTING = Setting(
    title="L_simple (Ho et al. 2020)",
    predicts="eps",
    learned_variance=False,
    kind="discrete",
    process="linear",
    T=1000,
    losses=lambda output, batch: squared_error(output, batch.eps),
)
