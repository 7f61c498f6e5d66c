"""Stage 0. The names of all variants, and a choice of them as a value; imports nothing heavy.

A name listed here is also that of the file with everything about its variant (`variances/optimal.py`), so command line,
report and result files know the names without importing a variant, and no other file repeats one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypedDict, get_args

Variance = Literal["posterior", "upper", "learned_range", "optimal", "learned_optimal"]
ModelVariance = Literal["posterior", "upper", "learned_range"]  # what a network may have been trained with
Decoder = Literal["upper", "first_pair", "respaced", "optimal"]
Cdf = Literal["exact", "tanh"]
Objective = Literal["elbo", "samples", "trajectory", "mixed"]
Purpose = Literal["likelihood", "samples"]  # what schedules are for, in users' words
Sampler = Literal["ancestral", "ddim", "dpmpp_2m", "heun"]
OdeSampler = Literal["ddim", "dpmpp_2m"]  # deterministic, for the trajectory objective
TrainingObjective = Literal["simple", "hybrid", "vlb", "continuous", "flow"]
Stride = Literal["even", "quadratic", "quadratic_ddim", "karras", "log_snr", "ays"]
Order = Literal["random", "confidence", "margin", "entropy"]  # in which masked tokens are revealed

VARIANCES: Final[tuple[Variance, ...]] = get_args(Variance)
MODEL_VARIANCES: Final[tuple[ModelVariance, ...]] = get_args(ModelVariance)
DECODERS: Final[tuple[Decoder, ...]] = get_args(Decoder)
CDFS: Final[tuple[Cdf, ...]] = get_args(Cdf)
OBJECTIVES: Final[tuple[Objective, ...]] = get_args(Objective)
PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)
SAMPLERS: Final[tuple[Sampler, ...]] = get_args(Sampler)
ODE_SAMPLERS: Final[tuple[OdeSampler, ...]] = get_args(OdeSampler)
TRAINING_OBJECTIVES: Final[tuple[TrainingObjective, ...]] = get_args(TrainingObjective)
STRIDES: Final[tuple[Stride, ...]] = get_args(Stride)
ORDERS: Final[tuple[Order, ...]] = get_args(Order)

# A network's training variance, for code that builds a `Denoiser` from a foreign model's configuration.
POSTERIOR: Final = "posterior"
UPPER: Final = "upper"
LEARNED_RANGE: Final = "learned_range"

EXACT: Final = "exact"  # the distribution function of the decoder costs in statistics

DEFAULT_MODEL_VARIANCE: Final = POSTERIOR
DEFAULT_DECODER: Final[Decoder] = "upper"
DEFAULT_CDF: Final[Cdf] = EXACT
DEFAULT_OBJECTIVE: Final[Objective] = "elbo"
SAMPLES: Final[Objective] = "samples"
TRAJECTORY: Final[Objective] = "trajectory"
OBJECTIVE_FOR: Final[dict[Purpose, Objective]] = {"likelihood": DEFAULT_OBJECTIVE, "samples": SAMPLES}
DEFAULT_TRAINING_OBJECTIVE: Final[TrainingObjective] = "simple"
DEFAULT_SAMPLER: Final[Sampler] = "ancestral"
DEFAULT_ORDER: Final[Order] = "random"  # the chain for which costs and bits/token are computed
SAMPLES_VARIANCE: Final[Variance] = "optimal"  # of ancestral steps: samples closest to real data of all measured
DEFAULT_ODE_SAMPLER: Final[OdeSampler] = "ddim"
EULER: Final[dict[str, Sampler]] = {"euler": DEFAULT_ODE_SAMPLER}  # the same method by its other name
FLOW_STRIDES: Final[tuple[Stride, ...]] = ("even", "quadratic", "karras")  # compared with trajectory paths
COMPARED_STRIDES: Final[tuple[Stride, ...]] = ("even", "quadratic")  # compared with the best paths in every table
EVEN: Final[Stride] = "even"
KARRAS: Final[Stride] = "karras"
RACED_BESIDE: Final[tuple[Stride, ...]] = (
    EVEN,
    "quadratic",
    KARRAS,
    "log_snr",
    "ays",
)  # compared with the winners

BEST: Final = "dp"  # the stride of the best path of a solution
GIVEN: Final = "given"  # the stride of a path that no rule of this package made


@dataclass(frozen=True)
class CostOptions:
    """Options of the ELBO costs, as recorded with every result.

    Attributes:
        variance: reverse variance of steps that end above 0.
        decoder: variance of the last step.
        cdf: the normal distribution function of the decoder.
    """

    variance: Variance
    decoder: Decoder = DEFAULT_DECODER
    cdf: Cdf = DEFAULT_CDF

    def __post_init__(self) -> None:
        check_choice("variance", self.variance, VARIANCES)
        check_choice("decoder", self.decoder, DECODERS)
        check_choice("cdf", self.cdf, CDFS)

    def to_dict(self) -> dict[str, Any]:
        """The options as stored in result files."""
        return asdict(self)

    @classmethod
    def from_dict(cls, options: Mapping[str, Any]) -> CostOptions:
        """Options from a result file, which may also hold those of other objectives."""
        for name in ("variance", "decoder", "cdf"):
            if not isinstance(options.get(name), str):
                raise ValueError(
                    f"These results do not record their {name}. Use schedules made by `optimise` or `dpstride solve`."
                )
        return cls(options["variance"], options["decoder"], options["cdf"])


class CostChoice(TypedDict, total=False):
    """Keywords that override a schedule's cost options; None keeps the schedule's own."""

    variance: Variance | None
    decoder: Decoder | None
    cdf: Cdf | None


class SamplerChoice(TypedDict, total=False):
    """Keywords that override a schedule's sampler; None keeps the schedule's own."""

    variance: Variance | None
    sampler: Sampler | None
    eta: float | None


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, not {value!r:.80}.")
