"""A race with numbers that are made up, for tests of its file and its page."""

from __future__ import annotations

from dpstride import ForwardProcess, ScheduleSet, even_stride, quadratic_stride
from dpstride.racing.finish import Entry, Finish
from dpstride.racing.halving import Heat, Round
from dpstride.racing.outcome import Race

PROCESS = ForwardProcess.linear(20)


def small_race() -> Race:
    """A race of 2 and 5 steps, its numbers made up; even steps were also measured at 4."""
    paths = {K: quadratic_stride(PROCESS, K).steps for K in (2, 3, 4, 5)}
    schedules = ScheduleSet(PROCESS, {K: (path, None, None) for K, path in paths.items()}, stride="raced")
    rounds = (
        Round(8, {"even": (0.5, 0.1), "elbo": (0.2, 0.1), "ays": (0.9, 0.2)}),
        Round(16, {"even": (0.4, 0.05), "elbo": (0.3, 0.06)}),
    )
    heats = tuple(Heat(K, "elbo", rounds, lead=(0.1, 0.06 / K)) for K in (2, 5))
    entries = {
        (name, K): Entry(
            name,
            path,
            0.4 / K,
            0.01,
            frechet=3.0 / K,
            ahead=None if name == "raced" else (0.1 / K, 0.02),
            beyond=(0.2 / K, 0.03),
        )
        for name, K, path in [
            *(("raced", K, paths[K]) for K in (2, 5)),
            *(("even", K, even_stride(PROCESS, K).steps) for K in (2, 4, 5)),
        ]
    }
    reference = Entry("reference", even_stride(PROCESS, 10).steps, 0.05, 0.01, frechet=0.2)
    finish = Finish(24, reference, 0.02, entries, {"raced": 5, "even": None}, evaluations=700, images={})
    return Race(
        schedules,
        heats,
        finish,
        "DDIM",
        "energy distance",
        scale=1000.0,
        evaluations={"race": 100, "finish": 700},
        notes=("A note.",),
        variances=(Heat(2, "upper", (Round(16, {"upper": (0.2, 0.1), "optimal": (0.3, 0.1)}),)),),
    )
