"""Sizes in a config, compared with the actual weights, since a network is built before they are loaded."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .loaded import UnsupportedModelError
from .scheduler_config import steps_of

MOST_CHANNELS = 2**20  # a layer, or a list of names, of this size is built before weights are compared
WIDTHS = re.compile(r"channels|embeds|num_labels|_(dim|size)$")
MOST_ORDER = 64  # of a scheduler, which allocates a list of this length
MOST_POSITIONS = 2**27  # numbers in a table of positions, which a transformer computes regardless of its weights


def check_sizes(config: Mapping[str, Any], tensors: int, path: Path) -> None:
    """Raise if the config asks for more than its weights can fill; everything else is compared when they are loaded."""
    if config.get("num_train_timesteps") is not None:
        try:
            steps_of(config)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{path}: {error}") from error
    for name, value in entries(config):
        if "block" in name and isinstance(value, list) and len(value) > max(tensors, 64):
            raise UnsupportedModelError(
                f"{path}: {name} has {len(value):,} entries, but its weights have only {tensors} tensors. It is damaged."
            )
        if "layers" in name or "num_blocks" in name:
            for number in _numbers(value):
                if number > max(tensors, 64):
                    raise UnsupportedModelError(
                        f"{path}: {name} = {number}, but its weights have only {tensors} tensors. The config is damaged."
                    )
        if name.endswith("_order") and (order := max(_numbers(value), default=0)) > MOST_ORDER:
            raise UnsupportedModelError(
                f"{path}: {name} = {order:,} is more than the {MOST_ORDER} that are accepted. The config is damaged."
            )
        if WIDTHS.search(name) and (widest := max(_numbers(value), default=0)) > MOST_CHANNELS:
            raise UnsupportedModelError(
                f"{path}: {name} = {widest:,} is more than any network has. The config is damaged."
            )
    if "patch_size" in config:
        patch = max(_numbers(config["patch_size"]), default=1)
        side = max((n for key in ("sample_size", "pos_embed_max_size") for n in _numbers(config.get(key))), default=1)
        width = max(_numbers(config.get("num_attention_heads")), default=1) * max(
            _numbers(config.get("attention_head_dim")), default=1
        )
        if patch < 1 or (side // patch) ** 2 * width > MOST_POSITIONS:
            raise UnsupportedModelError(
                f"{path}: sample_size {side} in patches of {patch} is a table of too many positions."
            )


def entries(config: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield names and values of a config, at any depth."""
    level: list[Any] = [config]
    while level:
        item = level.pop()
        if isinstance(item, dict):
            level.extend(item.values())
            yield from item.items()
        elif isinstance(item, list):
            level.extend(item)


def _numbers(value: Any) -> list[Any]:
    """Return the numbers in a value, in a list, or in nested lists."""
    level, found = [value], []
    while level:
        item = level.pop()
        if isinstance(item, list):
            level.extend(item)
        elif isinstance(item, (int, float)) and not isinstance(item, bool):
            found.append(item)
    return found
