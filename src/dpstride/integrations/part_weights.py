"""Weights that a network was loaded with: all that it has. Libraries make up what is missing, and go on with a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .loaded import UnsupportedModelError
from .parts import names_in


def check_complete(network: Any, copy: Path, folder: Path) -> None:
    """Raise unless every weight of a loaded ``network`` was in its clean ``copy``, of ``folder``.

    Names alone do not tell, since libraries rename old ones as they load; where they differ, the library is asked itself.
    """
    held = {name for path in sorted(copy.glob("*.safetensors")) for name in names_in(path)}
    if network.state_dict().keys() <= held:
        return
    _, found = type(network).from_pretrained(
        str(copy), use_safetensors=True, local_files_only=True, output_loading_info=True
    )
    if missing := sorted(found["missing_keys"]):
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UnsupportedModelError(
            f"{folder}: its weights lack {missing[0]!r:.80}{more}, which would be made up. Save the model again, whole."
        )
