"""Weights that a network was loaded with: all that it has, and no others. Libraries go on with a warning at most."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from .loaded import UnsupportedModelError
from .parts import types_in


def check_complete(network: Any, copy: Path, folder: Path) -> None:
    """Raise unless the weights in the clean ``copy`` of ``folder`` are those of the loaded ``network``.

    Names alone do not tell, since libraries rename old ones as they load; where they differ, the library is asked itself.
    Text encoders may have more than they need, such as the other half of a CLIP.
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
            f"{folder}: its weights lack {_first(missing)}, which would be made up. Save the model again, whole."
        )
    if hasattr(network, "register_to_config") and (unused := sorted(found["unexpected_keys"])):
        raise UnsupportedModelError(
            f"{folder}: its weights hold {_first(unused)}, for which the network of its config has no place. Is config.json "
            "theirs? Save the model again."
        )


def _first(names: list[str]) -> str:
    return f"{names[0]!r:.80}{f' and {len(names) - 1} more' if len(names) > 1 else ''}"
