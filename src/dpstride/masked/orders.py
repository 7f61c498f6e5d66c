"""Stage 7. Orders in which masked tokens are revealed, the highest score first; one record per order.

Costs and bits/token describe the chain of `random` only. The others use the network's predictions, so the known tokens depend
on the path; then the schedule's numbers are a starting point, and samples have to be evaluated themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ..options import Order


@dataclass(frozen=True)
class OrderRule:
    """An order of tokens.

    Attributes:
        words: description of the tokens that are revealed first.
        score: log-probabilities [m, vocabulary] and the tokens drawn from them [m] → scores [m]; None for a random order.
    """

    words: str
    score: Callable[[Tensor, Tensor], Tensor] | None = None


def _margin(logs: Tensor, drawn: Tensor) -> Tensor:
    first, second = logs.topk(2, dim=1).values.exp().unbind(dim=1)
    return first - second


def _entropy(logs: Tensor, drawn: Tensor) -> Tensor:
    return (logs.exp() * logs.clamp(min=-1e300)).sum(dim=1)


RULES: dict[Order, OrderRule] = {
    "random": OrderRule("any token, at random"),
    "confidence": OrderRule(
        "tokens drawn with the highest probability", lambda logs, drawn: logs.gather(1, drawn[:, None])[:, 0]
    ),
    "margin": OrderRule("tokens whose two likeliest values differ most in probability", _margin),
    "entropy": OrderRule("tokens of the least entropy", _entropy),
}
