"""Stage 1. The rules for every forward process, checked once, when it is built, with a clear error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from .reading.text import printable
from .runs.numbers import whole_number

if TYPE_CHECKING:
    from .process import ForwardProcess

Array = npt.NDArray[np.float64]


def check_grid(f: Array, g: Array, times: Array) -> None:
    """Raise unless f, g and times follow the rules for every process."""
    if not (f.shape == g.shape == times.shape) or f.ndim != 1 or f.size < 2:
        raise ValueError(
            f"f, g and times must be vectors of the same length, at least 2, not {f.shape}, {g.shape} and {times.shape}."
        )
    for name, array in (("f", f), ("g", g), ("times", times)):
        if not np.isfinite(array).all():
            i = int((~np.isfinite(array)).argmax())
            raise ValueError(f"{name} must be finite, but {name}[{i}] = {array[i]}. Move the grid off that point.")
    if times[0] != 0.0:
        raise ValueError(f"The grid must start at time 0, but times[0] = {times[0]}. Prepend 0.")
    if (np.diff(times) <= 0.0).any():
        i = int((np.diff(times) <= 0.0).argmax())
        raise ValueError(
            f"times must be strictly increasing, but times[{i}] = {times[i]} and times[{i + 1}] = {times[i + 1]}. Sort "
            "them and drop repeats."
        )
    if g[0] != 0.0:
        raise ValueError(
            f"Grid point 0 must be clean data (g[0] == 0), but g[0] = {g[0]}. Prepend a clean point to the grid."
        )
    if f[0] != 1.0:
        raise ValueError(
            f"Grid point 0 must be clean data (f[0] == 1), but f[0] = {f[0]}. Prepend a clean point, or divide f and g "
            "by f(0)."
        )
    for name, array, sign in (("f", f, -1.0), ("g", g, 1.0)):
        if (wrong := sign * np.diff(array) < 0.0).any():
            i = int(wrong.argmax())
            way = "rise" if sign < 0.0 else "fall"
            raise ValueError(
                f"{name} must not {way} along the grid, but {name}[{i}] = {array[i]} and {name}[{i + 1}] = "
                f"{array[i + 1]}. The grid runs from clean data to noise: f from 1 down, g from 0 up."
            )
    if (f < 0.0).any():
        raise ValueError(f"f must not be negative, but its least value is {f.min()}.")
    if (g[1:] <= 0.0).any():
        i = 1 + int((g[1:] <= 0.0).argmax())
        raise ValueError(f"Only grid point 0 may be clean, but g[{i}] = {g[i]}. Drop that point.")
    ratio = f[1:] / g[1:]
    if (np.diff(ratio) >= 0.0).any():
        i = 1 + int((np.diff(ratio) >= 0.0).argmax())
        raise ValueError(
            f"The signal-to-noise ratio must strictly fall along the grid, but points {i} and {i + 1} have (f, g) = "
            f"({f[i]}, {g[i]}) and ({f[i + 1]}, {g[i + 1]}). Drop one of them."
        )


def numbers(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """A copy in float64, or in int64 for origin; text and fractional grid indices are refused."""
    array = np.array(values)
    if array.dtype.kind not in ("iu" if name == "origin" else "iuf") or array.dtype == np.uint64:
        raise ValueError(f"{name} must be {'whole ' if name == 'origin' else ''}numbers, not {array.dtype}.")
    return array.astype(np.int64 if name == "origin" else np.float64)


def check_kind(kind: object, name: object, origin_T: object, first_pair_variance: object) -> None:
    """Check everything besides the arrays, which only a damaged file can get wrong."""
    if kind not in ("discrete", "continuous"):
        raise ValueError(f"kind must be 'discrete' or 'continuous', not {kind!r:.80}.")
    if not isinstance(name, str):
        raise ValueError(f"The name of a process must be a string, not {type(name).__name__}.")
    if isinstance(origin_T, bool) or not isinstance(origin_T, (int, np.integer)):
        raise ValueError(f"origin_T must be a whole number, not {origin_T!r:.80}.")
    if first_pair_variance is not None and not (
        isinstance(first_pair_variance, (int, float)) and 0.0 < first_pair_variance < np.inf
    ):
        raise ValueError(f"first_pair_variance must be positive and finite, or None, not {first_pair_variance!r:.80}.")


def check_labels(origin: npt.NDArray[np.int64], origin_T: int, input_scale: Array, T: int) -> None:
    """Check the labels and scales of the grid points, which only a damaged file can get wrong."""
    if origin.shape != (T + 1,) or origin[0] != 0 or (np.diff(origin) <= 0).any() or origin[-1] > origin_T:
        raise ValueError(
            f"origin must rise strictly from 0 to at most origin_T = {origin_T}, but it is {np.array2string(origin)}. Build "
            "the process with a class method, and thin it with subset."
        )
    if input_scale.shape != (T + 1,) or not (np.isfinite(input_scale) & (input_scale > 0.0)).all():
        raise ValueError(
            f"input_scale must be positive and finite at each of the {T + 1} grid points, but it is "
            f"{np.array2string(input_scale)}. Build the process with a class method."
        )


def vector(values: npt.ArrayLike, name: str) -> Array:
    """A finite float64 vector, or a clear error."""
    if hasattr(values, "detach"):  # a torch tensor, on any device
        values = values.detach().cpu().double().numpy()
    try:
        if np.iscomplexobj(values):
            raise TypeError("complex numbers")
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"{name} must be a vector of real numbers, not {printable(repr(values), 60)}.") from error
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be a non-empty vector, not an array of shape {array.shape}.")
    if not np.isfinite(array).all():
        i = int((~np.isfinite(array)).argmax())
        raise ValueError(f"{name} must be finite, but {name}[{i}] = {array[i]}.")
    return array


def check_T(T: int) -> None:
    """Raise unless ``T`` is a number of steps."""
    whole_number(T, "T must be a whole number of steps, at least 1")


def check_inside(values: Array, name: str, remedy: str) -> None:
    """Refuse numbers that do not lie strictly between 0 and 1."""
    if (outside := ~((values > 0.0) & (values < 1.0))).any():
        i = int(outside.argmax())
        raise ValueError(f"{name} must lie strictly between 0 and 1, but {name}[{i}] = {values[i]}. {remedy}")


def check_no_products(betas: Array) -> None:
    """Refuse values that fall from near 1: cumulative products (alpha_bar), or 1 − betas."""
    if betas.size < 2 or betas[0] <= 0.9 or betas[-1] >= betas[0] or (np.diff(betas) > 0.0).any():
        return
    found = f"Betas must start small, but these fall from {betas[0]:g} to {betas[-1]:g}"
    if np.median(betas) > 0.9:
        raise ValueError(f"{found}, as 1 - betas (alphas) do. Give 1 minus these.")
    ends = " without the clean point" if betas[0] == 1.0 else ""
    raise ValueError(f"{found}, as cumulative products (alpha_bar) do. Give them{ends} to from_alpha_bar.")


def has_same_functions(process: ForwardProcess, training: ForwardProcess) -> bool:
    """Return whether a continuous grid lies on the f and g of ``training``; True where those are not known."""
    f, g = training.f_function, training.g_function
    if process.kind != "continuous" or f is None or g is None:
        return True
    with np.errstate(all="ignore"):
        expected = type(process).from_functions(f, g, process.times)
    return bool(np.allclose(expected.f, process.f, 1e-9, 1e-12) and np.allclose(expected.g, process.g, 1e-9, 1e-12))
