"""Stage 2. A network of tokens as the distribution of every masked token given the others.

Only this module knows whether logits are shifted, what the network gets as time, and that no position becomes the mask token
again. Probabilities are float64; with large vocabularies they are computed for a few positions at a time.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from ..calling import PRECISIONS, NonFiniteError, autocast_in_force, call
from ..fingerprint import digest_of, name_of, parts_of, plain_parts
from ..reading.text import printable
from ..runs.numbers import whole_number
from .process import MaskedProcess

TimeInput = Literal["share"] | Callable[[Tensor], Tensor] | None
NUMBERS = 1 << 22  # logits converted to probabilities at a time
PROBED = 1 << 18  # logits that a probe compares


@dataclass(eq=False, repr=False)
class MaskedDenoiser:
    """A network of tokens, seen as the distribution of masked tokens given the others.

    Args:
        network: any callable ``network(tokens)`` → logits [B, n, vocabulary] for tokens int64 [B, n]; with ``time_input``,
            ``network(tokens, time)``. Conditioning is the last argument, or passed as keywords if it is a dict. Modules found
            in the network are put in evaluation mode. It must be a function of these arguments only, sample by sample.
        vocabulary: number of token ids, and of logits at each position.
        mask_token: id of a masked token; its own logit is ignored. It may be ``vocabulary`` or more, for a network that has an
            embedding but no logit for it.
        length: the most tokens that the network takes.
        pad_token: id after the end of shorter sequences, which the network ignores.
        shifted: logits at position l are those of the token at l + 1, as in models converted from autoregressive ones;
            position 0 takes its own.
        time_input: None for a network without time; "share" passes the share of masked tokens of each sample, float [B]; a
            callable is applied to that share.
        device: the network's device; that of its parameters when None.
        name: name of the model in reports.
    """

    network: Callable[..., Tensor]
    vocabulary: int
    mask_token: int
    length: int
    _: KW_ONLY
    pad_token: int | None = None
    shifted: bool = False
    time_input: TimeInput = None
    device: Any = None
    name: str | None = None

    def __post_init__(self) -> None:
        if not callable(self.network):
            raise ValueError(f"network must be callable as network(tokens), not {type(self.network).__name__}.")
        if not (self.time_input is None or self.time_input == "share" or callable(self.time_input)):
            raise ValueError(
                f"time_input must be None, 'share' or a callable of the share, not {self.time_input!r:.80}."
            )
        self.vocabulary = whole_number(self.vocabulary, "vocabulary must be a whole number of token ids, at least 2", 2)
        self.mask_token = whole_number(self.mask_token, "mask_token must be a token id, 0 or more", 0)
        self.process = MaskedProcess(self.length)
        self.length, self.shifted = self.process.length, bool(self.shifted)
        if self.pad_token is not None:
            self.pad_token = whole_number(self.pad_token, "pad_token must be a token id", 0)
        self.name = self.name or name_of(self.network)
        self._plain = plain_parts(self.network)
        modules = [part for part in parts_of(self.network) if isinstance(part, torch.nn.Module)]
        parameters = [parameter for module in modules for parameter in module.parameters()]
        for module in modules:
            module.eval()
        self.device = torch.device(self.device or (parameters[0].device if parameters else _CPU))
        self.dtype = next((each.dtype for each in parameters if each.dtype in PRECISIONS), None)

    def __repr__(self) -> str:
        return (
            f"<MaskedDenoiser {printable(str(self.name), 60)}: {self.vocabulary} token ids, up to {self.length} tokens>"
        )

    def on_grid(self, process: MaskedProcess) -> MaskedDenoiser:
        """The same network on another grid of counts."""
        if process.length > self.length:
            raise ValueError(
                f"The model takes up to {self.length} tokens, but the grid has {process.length}. Make the grid shorter."
            )
        other = copy.copy(self)
        other.process = process
        return other

    # --- predictions --------------------------------------------------------------------------------------------------

    def probabilities(
        self, x: Tensor, at: Tensor, share: Tensor, conditioning: Any = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Log-probabilities of the tokens at some positions, in one network pass.

        Args:
            x: tokens [B, n], with ``mask_token`` at masked positions.
            at: bool [B, n], the positions wanted.
            share: float [B], the share of masked tokens.
            conditioning: one entry per sample.

        Yields:
            Positions [m, 2] as (sample, place) and float64 log-probabilities [m, vocabulary], in chunks that fit into memory.
        """
        logits = self._logits(x, share, conditioning)
        places = at.to(logits.device).nonzero()
        for rows in torch.split(places, max(1, NUMBERS // self.vocabulary)):
            chosen = logits[rows[:, 0], rows[:, 1]].double()
            if self.mask_token < self.vocabulary:
                chosen[:, self.mask_token] = -torch.inf
            logs = chosen.log_softmax(dim=1)
            if bool((wrong := logs.isnan().any(dim=1)).any()):  # from NaN, from +inf, or if all are −inf
                bad = sorted(set(rows[wrong, 0].tolist()))
                raise NonFiniteError(f"The network returned NaN or infinity for {len(bad)} of {len(x)} samples.", bad)
            yield rows, logs

    def nats(self, ids: Tensor, x: Tensor, at: Tensor, share: Tensor, conditioning: Any = None) -> Tensor:
        """−ln p of the tokens ``ids`` [B, n] at the positions ``at``, 0 at others; float64 [B, n] on the CPU."""
        found = torch.zeros(ids.shape, dtype=torch.float64)
        for rows, logs in self.probabilities(x, at, share, conditioning):
            rows, logs = rows.cpu(), logs.cpu()
            sample, place = rows.unbind(dim=1)
            found[sample, place] = -logs[torch.arange(len(rows)), ids[sample, place]]
        if bool((impossible := found.isinf().any(dim=1)).any()):
            raise NonFiniteError(
                "The network gives a token of the data probability 0.", impossible.nonzero().flatten().tolist()
            )
        return found

    def response(self, x_t: Tensor, t: Tensor, conditioning: Any = None) -> Tensor:
        """The network's raw logits, at as many positions as a probe needs."""
        share = torch.from_numpy(self.process.fractions.copy())[t]
        logits = self._logits(x_t, share, conditioning)
        return logits[:, :: max(1, logits[0].numel() // PROBED)]

    # --- identity -----------------------------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """Digest of the network's current weights."""
        return digest_of(self.network, self._plain)

    @property
    def autocast_now(self) -> torch.dtype | None:
        """The lower precision of a torch.autocast around the call."""
        return autocast_in_force(self.device)

    def describe(self) -> dict[str, Any]:
        """Facts about the model that a result must record."""
        fed = self.time_input if self.time_input is None or isinstance(self.time_input, str) else "function"
        return {
            "name": self.name,
            "fingerprint": self.fingerprint,
            "vocabulary": self.vocabulary,
            "mask_token": self.mask_token,
            "pad_token": self.pad_token,
            "length": self.length,
            "shifted": self.shifted,
            "time_input": fed,
        }

    # --- inside -------------------------------------------------------------------------------------------------------

    def _logits(self, x: Tensor, share: Tensor, conditioning: Any) -> Tensor:
        """Logits of every position, with any shift undone."""
        x = x.to(device=self.device, dtype=torch.int64, copy=True)
        shape = (*x.shape, self.vocabulary)
        precision = self.dtype if self.dtype in (torch.float64, torch.float32) else torch.float32
        time = share.to(device=self.device, dtype=precision, copy=True)
        time = self.time_input(time) if callable(self.time_input) else time
        output = call(self.network if self.time_input is not None else self._without_time, x, time, conditioning)
        if not isinstance(output, Tensor):
            raise ValueError(
                f"network(tokens) must return a tensor of logits, not {type(output).__name__}. Wrap it, for example lambda "
                "tokens: network(tokens).logits for a model of transformers."
            )
        if tuple(output.shape) != shape or output.dtype not in PRECISIONS:
            hint = " Its last dimension must be the vocabulary." if tuple(output.shape[:2]) == shape[:2] else ""
            raise ValueError(
                f"The network must return real logits [samples, tokens, vocabulary] = {shape}, but it returned "
                f"{tuple(output.shape)} of {output.dtype}.{hint} Check vocabulary={self.vocabulary}."
            )
        output = output.detach()
        return torch.cat([output[:, :1], output[:, :-1]], dim=1) if self.shifted else output

    def _without_time(self, x: Tensor, time: Tensor, *conditioning: Any, **named: Any) -> Any:
        return self.network(x, *conditioning, **named)


_CPU = torch.device("cpu")
