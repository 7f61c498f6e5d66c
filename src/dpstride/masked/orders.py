"""Stage 7. Orders in which masked tokens are revealed: a score for each of them, the highest first, in one record each.

Only `random` is the chain that costs and bits/token are of. The others look at what the network says, so that the tokens that
are known depend on the path; the schedule's numbers are then a start, and samples have to be judged themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from ..options import Order


@dataclass(frozen=True)
class OrderRule:
    """An order by what the network says.

    Attributes:
        words: what is revealed first, for people.
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
