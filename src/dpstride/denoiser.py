"""Stage 2. A denoiser: a network, what it predicts, and how its output becomes x̂_0.

Every later stage sees only `Prediction`: the estimate of clean data and, for learned variances, the fraction φ per
dimension. The time fed to the network, its precision, and whether it predicts eps, x0, v or flow are known here and
nowhere else. All algebra around the network is in float64 (float32 on devices without float64).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .calling import (
    PRECISIONS,
    NonFiniteError,
    TimeInput,
    autocast_in_force,
    call,
    check_clip,
    checked,
    is_out_of_memory,
    missing_axis,
    sample_shape,
    time_table,
)
from .compiling import compiled
from .devices import usable_device
from .fingerprint import digest_of, name_of, parts_of, plain_parts
from .given import Given, put_into
from .options import DEFAULT_MODEL_VARIANCE, LEARNED_RANGE, MODEL_VARIANCES, ModelVariance, check_choice
from .process import ForwardProcess
from .process_rules import has_same_functions
from .reading.text import printable
from .runs.serving import hand_over

Predicts = Literal["eps", "x0", "v", "flow"]
DEFAULT_PREDICTS: Predicts = "eps"

__all__ = ["Denoiser", "NonFiniteError", "Prediction", "is_out_of_memory"]


@dataclass(frozen=True)
class Prediction:
    """Prediction of the network at (x_t, t): ``x0_hat`` after clipping, ``fraction`` (φ) where the variance is learned."""

    x0_hat: Tensor
    fraction: Tensor | None


class Denoiser:
    """A network on a forward process, seen as an estimator of clean data.

    Args:
        network: any callable ``network(x, time)`` or ``network(x, time, conditioning)``; x is [B, *shape] in the
            network's own precision, time is [B]. Conditioning that is a dict is passed as keywords. Modules found in
            it are put in evaluation mode. Its output must depend on these arguments alone, sample by sample; it may
            overwrite them.
        process: the forward process it was trained with, or a subset of its grid.
        predicts: "eps", "x0", "v" (= f eps - g x0) or "flow" (= eps - x0); None means "eps", as an assumption that
            `dpstride.check` then confirms or questions.
        variance: the reverse variance it was trained with; "learned_range" networks return 2C channels, the
            prediction and then v, with fraction φ = (v + 1)/2 (Nichol and Dhariwal), not clamped.
        clip: range to which x̂_0 is clipped, or None. Clipping changes every cost, so it is recorded with results.
        shape: one sample's shape; taken from the first batch when None.
        device: the network's device; taken from its parameters when None.
        trained_continuous: the network was trained on continuous noise levels, so `on_grid` accepts any grid.
        time_input: what the network receives as time at grid index t: "index0" (training step t - 1), "time" (the
            grid's own time, a float), "rescaled" (index0 · 1000/T, a float), or a callable of the training grid index.
        dtype: the network's precision; when None, taken from its parameters, or the highest it accepts if it has none.
        name: its name in reports.
        mask: for a model that is given some elements and predicts the others, the entry of the conditioning that is 1 where
            it predicts; only these elements count in results. The network gets the mask, and x_t with noise everywhere.
        observed: with ``mask``, the entry with the values of the given elements, which samples keep.
    """

    def __init__(
        self,
        network: Callable[..., Tensor],
        process: ForwardProcess,
        *,
        predicts: Predicts | None = None,
        variance: ModelVariance = DEFAULT_MODEL_VARIANCE,
        clip: tuple[float, float] | None = (-1.0, 1.0),
        shape: tuple[int, ...] | None = None,
        device: str | torch.device | None = None,
        trained_continuous: bool = False,
        time_input: TimeInput = "index0",
        dtype: torch.dtype | None = None,
        name: str | None = None,
        mask: str | None = None,
        observed: str | None = None,
    ) -> None:
        if not callable(network):
            raise ValueError(f"network must be callable as network(x, time), not {type(network).__name__}.")
        if not isinstance(process, ForwardProcess):
            raise ValueError(f"process must be a ForwardProcess, not {type(process).__name__}.")
        assumed, predicts = predicts is None, DEFAULT_PREDICTS if predicts is None else predicts
        check_choice("predicts", predicts, get_args(Predicts))
        check_choice("variance", variance, MODEL_VARIANCES)
        if dtype is not None and dtype not in PRECISIONS:
            names = ", ".join(str(each) for each in PRECISIONS)
            raise ValueError(f"dtype must be one of {names}, or None to find it, not {dtype!r}.")
        if predicts == "eps" and (process.f == 0.0).any():
            raise ValueError(
                f"predicts='eps' needs f > 0 everywhere, but the process {process.name!r} has f = 0 at grid index "
                f"{int((process.f == 0.0).argmax())}, where x0_hat = (x_t - g eps)/f divides by zero. Use a network "
                "that predicts x0, v or flow, or a grid that ends before pure noise."
            )
        check_clip(clip)
        self.network = network
        self.process = process
        self.predicts: Predicts = predicts
        self.predicts_assumed = assumed
        self.variance: ModelVariance = variance
        self.clip = None if clip is None else (float(clip[0]), float(clip[1]))
        self.shape = None if shape is None else sample_shape(shape)
        self.trained_continuous = bool(trained_continuous)
        self.time_input: TimeInput = time_input
        self.name = name or name_of(network)
        self.given = Given.named(mask, observed)
        self._plain = plain_parts(network)

        modules = [part for part in parts_of(network) if isinstance(part, torch.nn.Module)]
        parameters = [p for module in modules for p in module.parameters()]
        for module in modules:
            module.eval()
        self.device = usable_device(device) if device is not None else parameters[0].device if parameters else _CPU
        floating = [p.dtype for p in parameters if p.dtype in PRECISIONS]
        self.dtype = dtype or (floating[0] if floating else None)
        self.algebra_dtype = torch.float32 if self.device.type == "mps" else torch.float64
        self.autocast: torch.dtype | None = None
        self._run: Callable[..., Any] = network
        self._time = time_table(time_input, process).to(self.device)
        self._f, self._g, self._input_scale = (
            torch.tensor(array, dtype=self.algebra_dtype, device=self.device)
            for array in (process.f, process.g, process.input_scale)
        )

    def __call__(self, x_t: Tensor, t: int | Tensor, conditioning: Any = None) -> Prediction:
        """x̂_0 (and φ) at ``x_t`` [B, *shape], one network pass; ``t`` is a grid index or one per sample [B]."""
        return self.begin(x_t, t, conditioning)()

    def begin(self, x_t: Tensor, t: int | Tensor, conditioning: Any = None) -> Callable[[], Prediction]:
        """Begin such a pass and return a function that waits for its result; other work may be done meanwhile (`waits`)."""
        index = self._index_of(t, x_t.shape[0])
        x_t = x_t.to(device=self.device, dtype=self.algebra_dtype)
        x, shape = self._network_input(x_t, index), tuple(x_t.shape)
        given = None if self.given is None else self.given.entries(conditioning, shape)
        output = hand_over(lambda: self._call_network(x, index, conditioning, self._run))
        return lambda: self._prediction(x_t, index, checked(output(), shape, self.variance), given)

    def predict_from(self, output: Tensor, x_t: Tensor, t: int | Tensor) -> Prediction:
        """x̂_0 (and φ) at ``x_t`` from the network's own ``output``, as `response` returns it."""
        x_t = x_t.to(device=self.device, dtype=self.algebra_dtype)
        return self._prediction(x_t, self._index_of(t, x_t.shape[0]), output)

    def _prediction(
        self, x_t: Tensor, index: Tensor, output: Tensor, given: tuple[Tensor, Tensor] | None = None
    ) -> Prediction:
        f_t, g_t = (array[index].reshape(-1, *([1] * (x_t.ndim - 1))) for array in (self._f, self._g))
        self._check_finite(output, index)
        # Copy in any precision: a network may return the same tensor every time and overwrite it.
        output = output.to(device=self.device, dtype=self.algebra_dtype, copy=True)
        fraction = None
        if self.variance == LEARNED_RANGE:
            output, v = output.chunk(2, dim=1)
            fraction = (v + 1.0) / 2.0
        match self.predicts:
            case "eps":
                x0_hat = (x_t - g_t * output).div_(f_t)
            case "x0":
                x0_hat = output
            case "v":
                x0_hat = (f_t * x_t - g_t * output).div_(f_t**2 + g_t**2)
            case "flow":
                x0_hat = (x_t - g_t * output).div_(f_t + g_t)
        if self.clip is not None:
            x0_hat = x0_hat.clamp_(*self.clip)
        return Prediction(x0_hat, fraction) if given is None else Prediction(*put_into(given, x0_hat, fraction))

    def response(self, x_t: Tensor, t: int | Tensor, conditioning: Any = None) -> Tensor:
        """The network's own output at ``x_t``, in its own precision and never compiled; it may hold NaN or infinity."""
        x_t = x_t.to(device=self.device, dtype=self.algebra_dtype)
        index = self._index_of(t, x_t.shape[0])
        output = self._call_network(self._network_input(x_t, index), index, conditioning, self.network)
        return checked(output, tuple(x_t.shape), self.variance)

    def on_grid(self, process: ForwardProcess) -> Denoiser:
        """The same network on another grid; ValueError if it was never trained there or its time input is unknown."""
        if process.kind != self.process.kind and not self.trained_continuous:
            raise ValueError(
                f"A {process.kind} grid was given to a model of a {self.process.kind} process. Pass "
                "trained_continuous=True to Denoiser if the network was trained on continuous noise levels."
            )
        if process.kind == "discrete" and not self.trained_continuous and not process.is_grid_of(self.process):
            raise ValueError(
                f"This grid ({process.name!r}, T = {process.T}) is not a subset of the training steps of the model "
                f"({self.process.name!r}, T = {self.process.T}), and a model trained on discrete steps is undefined "
                "between them. Use denoiser.process.subset(steps), or trained_continuous=True if the network was "
                "trained on continuous noise levels."
            )
        if not self.trained_continuous and not has_same_functions(process, self.process):
            raise ValueError(
                f"f and g of the grid ({process.name!r}) are not those of the process that the model was trained on "
                f"({self.process.name!r}). Give other times to the same functions, for example "
                "ForwardProcess.from_functions(f, g, times)."
            )
        if self.time_input != "time" and not process.is_grid_of(self.process):
            raise ValueError(
                f"time_input={self._time_name!r} names steps of the grid that the Denoiser was built on, which mean "
                f"nothing on another grid ({process.name!r}, T = {process.T}). Use time_input='time', or build a Denoiser "
                "on that grid with a time_input of its own."
            )
        return self._with(process, self.device)

    def to(self, device: str | torch.device) -> Denoiser:
        """The same denoiser on another device. Modules are moved; tensors that a plain function holds are not."""
        place = usable_device(device)
        for part in parts_of(self.network):
            if isinstance(part, torch.nn.Module):
                part.to(place)
        return self._with(self.process, place)

    def faster(self, *, compile: bool = False, autocast: torch.dtype | None = None) -> Denoiser:
        """The same denoiser, run faster: compiled with torch.compile, or in lower precision under torch.autocast.

        Compiling takes about a minute for each frequent batch size and freezes the weights; results agree up to the
        network's rounding. Autocast changes results by more, so it is recorded with them.
        """
        if autocast is not None and autocast not in (torch.bfloat16, torch.float16):
            raise ValueError(f"autocast must be None, torch.bfloat16 or torch.float16, not {autocast!r}.")
        result = self._with(self.process, self.device)
        result.autocast = autocast
        result._run = compiled(self.network, self.device) if compile else self.network
        return result

    def __repr__(self) -> str:
        assumed = " (assumed)" if self.predicts_assumed else ""
        says = f"predicts {self.predicts}{assumed}, {self.variance} variance, {self.process.name}, T = {self.process.T}"
        return f"<Denoiser {printable(self.name, 60)}: {says}>"

    def describe(self) -> dict[str, Any]:
        """Facts about the model that every result must record, besides the process."""
        described: dict[str, Any] = {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "predicts": self.predicts,
            "variance": self.variance,
            "clip": None if self.clip is None else list(self.clip),
            "time_input": self._time_name,
            "trained_continuous": self.trained_continuous,
        }
        described |= {} if self.given is None else self.given.describe()
        return described if self.autocast is None else described | {"autocast": str(self.autocast)}

    @property
    def fingerprint(self) -> str:
        """Digest of the network's current weights; reads all of them."""
        return digest_of(self.network, self._plain)

    @property
    def times_fed(self) -> Tensor:
        """Times fed to the network at every grid index [T + 1], integers or floats; index 0 is unused."""
        return self._time.clone()

    @property
    def autocast_now(self) -> torch.dtype | None:
        """Autocast's precision, from `faster` or a torch.autocast around the call; None without autocast."""
        return self.autocast or autocast_in_force(self.device)

    @property
    def passes(self) -> int:
        """Network passes in one evaluation: ``network.passes`` where the network declares it (2 with guidance), else 1."""
        declared = getattr(self.network, "passes", 1)
        return declared if isinstance(declared, int) and declared > 1 else 1

    @property
    def at_once(self) -> int:
        """Batches to run at a time: torch's number of threads for a network on the CPU that declares this safe, else 1.

        A callable may keep state during a call (the time, a cache) that another thread would change, so it has to declare
        that it does not: ``network.stateless = True``. A compiled network is for one thread, and a torch.autocast around the
        call holds for the caller's thread only.
        """
        may = getattr(self.network, "stateless", False) is True and self._run is self.network
        may = may and autocast_in_force(self.device) is None
        return torch.get_num_threads() if may and self.device.type == "cpu" else 1

    @property
    def waits(self) -> bool:
        """Return whether the CPU is idle while the network runs, and can prepare the next batch meanwhile.

        True on every device but the CPU itself and Apple's GPUs (mps), whose tensors are not thread-safe.
        """
        return self.device.type not in ("cpu", "mps")

    # --- internals --------------------------------------------------------------------------------------------------

    def _with(self, process: ForwardProcess, device: torch.device) -> Denoiser:
        result = Denoiser(
            self.network,
            process,
            predicts=self.predicts,
            variance=self.variance,
            clip=self.clip,
            shape=self.shape,
            device=device,
            trained_continuous=self.trained_continuous,
            time_input=self.time_input,
            dtype=self.dtype,
            name=self.name,
        )
        result.autocast, result._run, result._plain = self.autocast, self._run, self._plain
        result.predicts_assumed, result.given = self.predicts_assumed, self.given
        return result

    @property
    def _time_name(self) -> str:
        if isinstance(self.time_input, str):
            return self.time_input
        return f"function {digest_of(None, [self._time])}"

    def _index_of(self, t: int | Tensor, count: int) -> Tensor:
        """Grid indices [count], from one index for all samples or one per sample."""
        index = torch.as_tensor(t)
        T = self.process.T
        if (
            index.is_floating_point()
            or index.shape not in ((), (count,))
            or not bool(((index >= 1) & (index <= T)).all())
        ):
            raise ValueError(
                f"t must be a grid index from 1 to T = {T}, or one per sample ({count} of them), not {t!r}. Index 0 is "
                "clean data."
            )
        return index.to(device=self.device, dtype=torch.int64).expand(count)

    def _network_input(self, x_t: Tensor, index: Tensor) -> Tensor:
        """A new tensor for one call, which the network may overwrite; in the network's precision, once that is known."""
        shape = tuple(x_t.shape)
        if self.shape is None:
            self.shape = shape[1:]
        elif shape[1:] != self.shape:
            raise ValueError(
                f"This denoiser takes samples of shape {self.shape}, but the data has shape {shape[1:]}. "
                f"{missing_axis(shape[1:], self.shape)}Reshape the data, or build the Denoiser with the right shape=."
            )
        x = x_t * self._input_scale[index].reshape(-1, *([1] * (x_t.ndim - 1)))
        return x if self.dtype is None else x.to(self.dtype)

    def _call_network(self, x: Tensor, index: Tensor, conditioning: Any, run: Callable[..., Any]) -> Any:
        if self.dtype is None:
            return self._call_finding_dtype(x, index, conditioning)
        return call(run, x.to(self.dtype), self._time_of(index, self.dtype), conditioning, autocast=self.autocast)

    def _time_of(self, index: Tensor, dtype: torch.dtype) -> Tensor:
        time = self._time[index]
        return time.to(torch.float64 if dtype == torch.float64 else torch.float32) if time.is_floating_point() else time

    def _call_finding_dtype(self, x: Tensor, index: Tensor, conditioning: Any) -> Any:
        """Call a network without parameters in the highest precision that it accepts, which this first call finds."""
        complaint: RuntimeError | None = None
        for dtype in PRECISIONS:
            if dtype == torch.float64 and self.algebra_dtype != torch.float64:
                continue
            try:
                time = self._time_of(index, dtype)
                output = call(self.network, x.to(dtype, copy=True), time, conditioning, autocast=self.autocast)
            except RuntimeError as error:  # raised by torch when two dtypes do not match
                if is_out_of_memory(error):
                    raise
                complaint = error if complaint is None or dtype == torch.float32 else complaint
                continue
            self.dtype = dtype
            return output
        assert complaint is not None
        raise complaint

    def _check_finite(self, output: Tensor, index: Tensor) -> None:
        # A sum is finite only if all its terms are, and takes one pass that allocates nothing; it may overflow, though.
        if bool(torch.isfinite(output.sum(dtype=self.algebra_dtype))):
            return
        finite = torch.isfinite(output)
        if not bool(finite.all()):
            bad = ~finite.reshape(output.shape[0], -1).all(dim=1)
            t = int(index[int(bad.int().argmax())])
            raise NonFiniteError(
                f"The network returned NaN or infinity at grid step t = {t} (time {self.process.times[t]:g}), for "
                f"{int(bad.sum())} of {len(bad)} samples in the batch. Check its weights and precision (float16 "
                "overflows; try bfloat16 or float32).",
                bad.nonzero().flatten().tolist(),
            )


_CPU = torch.device("cpu")
