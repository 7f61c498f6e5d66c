"""`predicts` left out is "eps", and the check then confirms or doubts it by name."""

from __future__ import annotations

from exact import COSINE, LINEAR, TRUTHS, Truth, images

import dpstride
from dpstride import Denoiser


def left_out(truth: Truth) -> Denoiser:
    return Denoiser(truth.network(), truth.process, time_input=truth.time, clip=None, shape=(3, 4, 4))


def test_the_default_is_stated_and_kept_by_copies() -> None:
    denoiser = left_out(TRUTHS["eps, linear"])
    assert denoiser.predicts == "eps"
    assert "predicts eps (assumed)" in repr(denoiser)
    assert "(assumed)" in repr(denoiser.to("cpu"))
    assert denoiser.describe() == TRUTHS["eps, linear"].denoiser().describe() | {
        "name": denoiser.name,
        "fingerprint": denoiser.fingerprint,
        "time_input": denoiser.describe()["time_input"],
    }


def test_a_right_default_is_confirmed() -> None:
    found = dpstride.check(left_out(Truth(LINEAR, "eps")), images("cifar-test"), progress=False)
    assert found.ok
    assert "predicts was left out, and 'eps', the default, is right." in str(found)
    assert (
        "left out" not in dpstride.check(Truth(LINEAR, "eps").denoiser(), images("cifar-test"), progress=False).sentence
    )


def test_a_wrong_default_is_named() -> None:
    found = dpstride.check(left_out(Truth(COSINE, "v")), images("cifar-test"), progress=False)
    assert found.changes == ("predicts='v'",)
    assert found.sentence.startswith("predicts was left out, so 'eps' was assumed. predicts='v' would explain")
