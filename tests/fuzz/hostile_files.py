"""Files made to harm."""

from __future__ import annotations

import struct


def tensor_program(storage: str, count: int, offset: int, size: tuple[int, ...], stride: tuple[int, ...]) -> bytes:
    """The pickle of a dict {"images": tensor}, as torch.save writes it."""

    def whole(value: int) -> bytes:
        return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)

    def text(value: str) -> bytes:
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    pid = (
        b"("
        + text("storage")
        + b"c"
        + storage.replace(" ", "\n").encode()
        + b"\n"
        + text("0")
        + text("cpu")
        + whole(count)
        + b"t"
    )
    shape = b"(" + b"".join(map(whole, size)) + b"t" + b"(" + b"".join(map(whole, stride)) + b"t"
    rebuild = (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + pid
        + b"Q"
        + whole(offset)
        + shape
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )
    return b"\x80\x02}" + text("images") + rebuild + b"s."
