"""Hypothesis strategies that damage pickles and checkpoints."""

from __future__ import annotations

import pickletools

from draws import NUMBERS, Draw, damaged, edited_zip
from hypothesis import strategies as st

# --- torch -------------------------------------------------------------------------------------------------------------

GLOBALS = st.sampled_from(
    [
        *("os system", "builtins exec", "posix system", "torch.serialization load", "torch._utils _rebuild_qtensor"),
        *(
            "torch._utils _rebuild_sparse_tensor",
            "torch HalfStorage",
            "torch QInt8Storage",
            "torch.nn.modules.linear Linear",
        ),
        *(
            "collections OrderedDict",
            "collections Counter",
            "torch Size",
            "torch.storage UntypedStorage",
            "torch float16",
        ),
        *("numpy._core.multiarray _reconstruct", "torch._utils _rebuild_tensor_v3", "torch._utils _rebuild_parameter"),
    ]
)


def edited_checkpoint(content: bytes) -> st.SearchStrategy[bytes]:
    return edited_zip(
        content, lambda name, value: edited_pickle(value) if name.endswith(".pkl") else damaged(value, value)
    )


@st.composite
def edited_old_checkpoint(draw: Draw, content: bytes) -> bytes:
    """One of the five pickles edited, or the storages behind them."""
    parts, start = [], 0
    for _ in range(5):
        end = start + list(pickletools.genops(content[start:]))[-1][2] + 1  # type: ignore[operator]
        parts.append(content[start:end])
        start = end
    at = draw(st.sampled_from([0, 1, 2, 3, 3, 3, 3, 4, 5]))
    parts.append(content[start:])
    parts[at] = draw(damaged(parts[at], parts[3]) if at == 5 else edited_pickle(parts[at]))
    return b"".join(parts)


@st.composite
def edited_pickle(draw: Draw, program: bytes) -> bytes:
    """A pickle with instructions changed, dropped, repeated or put in."""
    places = [position for _, _, position in pickletools.genops(program) if position is not None]
    pieces = [program[start:end] for start, end in zip(places, [*places[1:], len(program)], strict=True)]
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(pieces) - 1))
        match draw(st.sampled_from(["number", "number", "global", "drop", "repeat", "swap", "insert", "noise"])):
            case "number":
                numbers = [i for i, piece in enumerate(pieces) if piece[:1] in (b"K", b"M", b"J")]
                if numbers:
                    value = draw(NUMBERS) & (2**63 - 1)
                    digits = value.to_bytes(8, "little", signed=True)
                    pieces[draw(st.sampled_from(numbers))] = b"\x8a\x08" + digits
            case "global":
                names = [i for i, piece in enumerate(pieces) if piece[:1] == b"c"]
                if names:
                    pieces[draw(st.sampled_from(names))] = b"c" + draw(GLOBALS).replace(" ", "\n").encode() + b"\n"
            case "drop":
                del pieces[at]
            case "repeat":
                pieces.insert(at, pieces[at])
            case "swap":
                other = draw(st.integers(0, len(pieces) - 1))
                pieces[at], pieces[other] = pieces[other], pieces[at]
            case "insert":
                pieces.insert(at, draw(st.sampled_from(list(b"(0122)]}tRQNbeauslo.")).map(lambda code: bytes([code]))))
            case "noise":
                pieces[at] = draw(st.binary(max_size=8))
        if not pieces:
            break
    return b"".join(pieces)
