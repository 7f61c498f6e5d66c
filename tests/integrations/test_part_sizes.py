"""Sizes in a config that would be allocated before weights are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpstride.integrations.loaded import UnsupportedModelError
from dpstride.integrations.part_sizes import check_sizes


@pytest.mark.parametrize("value", [2**31 - 1, [8, 2**31 - 1]])
def test_channels_that_no_network_has_are_refused_by_the_name_of_the_file(value: object) -> None:
    with pytest.raises(
        UnsupportedModelError, match=r"config\.json: in_channels = 2,147,483,647 is more than any network"
    ):
        check_sizes({"in_channels": value}, 10, Path("config.json"))
    check_sizes({"in_channels": 320, "block_out_channels": [320, 1280]}, 10, Path("config.json"))
