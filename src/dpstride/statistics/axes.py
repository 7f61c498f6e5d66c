"""Stage 3. Which axes of an array are samples and channels, with a warning where the shape is ambiguous."""

from __future__ import annotations

import warnings

CHANNELS, LEAST_SIDE = (1, 3, 4), 8  # of images: numbers of channels, and the smallest side of an unmistakable image


def has_channels_last(shape: tuple[int, ...]) -> bool:
    """Return whether images of ``shape`` [N, …] are read with channels last: only the last axis looks like channels."""
    return shape[-1] in CHANNELS and shape[1] not in CHANNELS


def warn_about_channels(shape: tuple[int, ...]) -> None:
    """Warn how images of ``shape`` [N, …] were read, if they could be read either way; mostly small images."""
    count, second, third, last = shape
    if last not in CHANNELS:  # channels first, as is usual
        return
    readings = [(second, third, last), (last, second, third)]  # channels, height, width
    names = ["first", "last"]
    if has_channels_last(shape):
        readings, names = readings[::-1], names[::-1]
    taken, other = readings
    squarer = _squareness(other) - _squareness(taken)
    if squarer < 0.0 or (squarer == 0.0 and second >= LEAST_SIDE) or second == third == last == 1:
        return
    channels, height, width = taken
    how = "save them channels first"
    if names[1] == "first":
        how = "pass them unchanged: from a function (package.module:function), or in Python as an array"
    warnings.warn(
        f"Data of shape {shape} were read with channels {names[0]}: {count:,} images with {channels} channels of {height} × "
        f"{width}. If channels are {names[1]}, {how}.",
        stacklevel=5,
    )


def _squareness(reading: tuple[int, int, int]) -> float:
    """Shorter side over longer side: images are mostly square, or nearly."""
    _, height, width = reading
    return min(height, width) / max(height, width)


def warn_about_one_image(shape: tuple[int, ...], discretised: bool) -> None:
    """Warn how an array was read if it looks like a single image, grey or with channels first or last."""
    first, *middle, last = shape
    if len(shape) == 2:
        looks = discretised and first == last >= LEAST_SIDE
    elif len(shape) == 3 and middle[0] >= LEAST_SIDE:
        channels_first = first in CHANNELS and last >= LEAST_SIDE
        looks = channels_first or (discretised and first >= LEAST_SIDE and last in CHANNELS[1:])
    else:
        looks = False
    if looks:
        warnings.warn(
            f"Data of shape {shape} were read as {first} sample{'s' if first > 1 else ''} of shape {shape[1:]}. For a single "
            "image give data[None], channels first; for samples without a channel axis give data[:, None].",
            stacklevel=4,
        )
