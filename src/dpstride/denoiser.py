"""Stage 2. A denoiser: a network, what it predicts, and how its output becomes x̂_0.

Every later stage sees only `Prediction`: the estimate of clean data and, for learned variances, the fraction φ per
dimension. What the network is fed as time, in which precision it runs, and whether it predicts eps, x0, v or flow is
known here and nowhere else. All algebra around the network is float64 (float32 on devices without float64).
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
            it are put in evaluation mode. It must be a function of these alone, sample by sample; what is given to it is
            its own, to write into if it likes.
        process: the forward process it was trained with, or a subset of its grid.
        predicts: "eps", "x0", "v" (= f eps - g x0) or "flow" (= eps - x0); None is "eps", which `dpstride.check` then
            confirms or doubts by name.
        variance: the reverse variance it was trained with; "learned_range" networks return 2C channels, the
            prediction and then v, with fraction φ = (v + 1)/2 (Nichol and Dhariwal), not clamped.
        clip: range to which x̂_0 is clipped, or None. Clipping changes every cost, so it is recorded with results.
        shape: one sample's shape; learnt from the first batch when None.
        device: where the network lives; found from its parameters when None.
        trained_continuous: the network was trained on continuous noise levels, so `on_grid` takes any grid.
        time_input: what the network receives as time at grid index t: "index0" (training step t - 1), "time" (the
            grid's own time, a float), "rescaled" (index0 · 1000/T, a float), or a callable of the training grid index.
        dtype: the network's precision; found from its parameters when None, else the highest it accepts.
        name: how reports call it.
        mask: of a model that is given some elements and predicts the others, the entry of the conditioning that is 1 where it
            predicts: only these count, everywhere. The network gets it, and x_t noised everywhere.
        observed: with ``mask``, the entry that holds the values of given elements, where samples then keep them.
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
        """Begin such a pass and return what waits for its result: there may be something to do meanwhile (`waits`)."""
        index = self._index_of(t, x_t.shape[0])
        x_t = x_t.to(device=self.device, dtype=self.algebra_dtype)
        x, shape = self._network_input(x_t, index), tuple(x_t.shape)
        given = None if self.given is None else self.given.entries(conditioning, shape)
        output = hand_over(lambda: self._call_network(x, index, conditioning, self._run))
        return lambda: self._prediction(x_t, index, checked(output(), shape, self.variance), given)

    def predict_from(self, output: Tensor, x_t: Tensor, t: int | Tensor) -> Prediction:
        """x̂_0 (and φ) at ``x_t`` where the network's own ``output`` is known, from `response`."""
        x_t = x_t.to(device=self.device, dtype=self.algebra_dtype)
        return self._prediction(x_t, self._index_of(t, x_t.shape[0]), output)

    def _prediction(
        self, x_t: Tensor, index: Tensor, output: Tensor, given: tuple[Tensor, Tensor] | None = None
    ) -> Prediction:
        f_t, g_t = (array[index].reshape(-1, *([1] * (x_t.ndim - 1))) for array in (self._f, self._g))
        self._check_finite(output, index)
        # A copy, whatever the precision: a network may return the same tensor every time, with other numbers in it.
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
        """The same network on another grid; refused where the network was never trained or its time is unknown."""
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
        """The same on another device. Modules are moved; a function's own tensors are its author's to move."""
        place = usable_device(device)
        for part in parts_of(self.network):
            if isinstance(part, torch.nn.Module):
                part.to(place)
        return self._with(self.process, place)

    def faster(self, *, compile: bool = False, autocast: torch.dtype | None = None) -> Denoiser:
        """The same, run faster: compiled with torch.compile, or where torch sees fit in a lower precision.

        Compiling takes about a minute for each batch size that comes often; weights are then taken as they are, and results
        agree up to the network's rounding. Autocast changes them by more, so it is recorded with them.
        """
        if autocast is not None and autocast not in (torch.bfloat16, torch.float16):
            raise ValueError(f"autocast must be None, torch.bfloat16 or torch.float16, not {autocast!r}.")
        result = self._with(self.process, self.device)
        result.autocast = autocast
        result._run = compiled(self.network, self.device) if compile else self.network
        return result

    def __repr__(self) -> str:
        assumed = " (assumed)" if self.predicts_assumed else ""
        told = f"predicts {self.predicts}{assumed}, {self.variance} variance, {self.process.name}, T = {self.process.T}"
        return f"<Denoiser {printable(self.name, 60)}: {told}>"

    def describe(self) -> dict[str, Any]:
        """Facts about the model that a result must record, besides the process."""
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
        """Digest of the weights that the network has now; reads every one."""
        return digest_of(self.network, self._plain)

    @property
    def times_fed(self) -> Tensor:
        """Values that the network is fed as time at every grid index [T + 1]; whole numbers or floats, index 0 unused."""
        return self._time.clone()

    @property
    def autocast_now(self) -> torch.dtype | None:
        """The lower precision in which torch runs what it sees fit: from `faster`, or a torch.autocast around the call."""
        return self.autocast or autocast_in_force(self.device)

    @property
    def passes(self) -> int:
        """Passes of the network in one evaluation: what it says of itself, ``network.passes = 2`` where guided, else 1."""
        said = getattr(self.network, "passes", 1)
        return said if isinstance(said, int) and said > 1 else 1

    @property
    def at_once(self) -> int:
        """Batches to pass at a time: as many as torch has threads, for a network on the processor that says it may.

        A callable may keep something between its lines (the time, a cache) that another thread would change, so it has to
        say that it does not: ``network.stateless = True``. What torch.compile makes is for one thread, and a torch.autocast
        around the call holds for the caller's thread only.
        """
        may = getattr(self.network, "stateless", False) is True and self._run is self.network
        may = may and autocast_in_force(self.device) is None
        return torch.get_num_threads() if may and self.device.type == "cpu" else 1

    @property
    def waits(self) -> bool:
        """Return whether the processor only waits while the network runs, and can make the next batch meanwhile.

        So it is on every device but the processor itself, and Apple's, whose tensors do not bear several threads.
        """
        return self.device.type not in ("cpu", "mps")

    # --- inside -----------------------------------------------------------------------------------------------------

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
        """Grid indices [count] from one for all or one per sample."""
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
        """A new tensor for one call, which the network may write into; in its own precision, once that is known."""
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
        """A callable with no parameters of its own: the highest precision that it accepts, found on its first call."""
        complaint: RuntimeError | None = None
        for dtype in PRECISIONS:
            if dtype == torch.float64 and self.algebra_dtype != torch.float64:
                continue
            try:
                time = self._time_of(index, dtype)
                output = call(self.network, x.to(dtype, copy=True), time, conditioning, autocast=self.autocast)
            except RuntimeError as error:  # torch's way to say that two dtypes do not match
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
