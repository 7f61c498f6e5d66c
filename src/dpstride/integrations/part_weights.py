"""Check that a network was loaded with all of its weights and no others; libraries warn at most."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .loaded import UnsupportedModelError
from .parts import types_in


def check_complete(network: Any, copy: Path, folder: Path) -> None:
    """Raise unless the weights in the clean ``copy`` of ``folder`` are those of the loaded ``network``.

    Names alone are not enough, since libraries rename old ones on loading; if they differ, the library itself is asked.
    Text encoders may have more weights than needed, such as the other half of a CLIP.
    """
    own = network.state_dict()
    held = {name: kind for path in sorted(copy.glob("*.safetensors")) for name, kind in types_in(path).items()}
    if whole := sorted(
        name for name in own.keys() & held if own[name].is_floating_point() and re.match("I|U|BOOL", held[name])
    ):
        raise UnsupportedModelError(
            f"{folder}: its weights hold {whole[0]!r:.80} as whole numbers ({held[whole[0]]}): they are quantised, which other "
            "packages unpack. Load the pipeline yourself and give the object to load_diffusers."
        )
    if own.keys() == held.keys():
        return
    _, found = type(network).from_pretrained(
        str(copy), use_safetensors=True, local_files_only=True, output_loading_info=True
    )
    if missing := sorted(found["missing_keys"]):
        raise UnsupportedModelError(
            f"{folder}: its weights lack {_first(missing)}, which would be random. Save the complete model again."
        )
    if hasattr(network, "register_to_config") and (unused := sorted(found["unexpected_keys"])):
        raise UnsupportedModelError(
            f"{folder}: its weights hold {_first(unused)}, which the network of its config does not have. Check that "
            "config.json belongs to them, or save the model again."
        )


def _first(names: list[str]) -> str:
    return f"{names[0]!r:.80}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
