"""Stage 2. Data of masked diffusion: sequences of token ids, with a role for every position.

A position is *free* (to be generated, hence masked at random and scored), *known* (a prompt, a special token, an earlier
block), *hidden* (a later block: always masked, and not scored) or *padding* after the end of its sequence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..runs.numbers import whole_number
from ..statistics.data import check_conditioning, slice_conditioning, tensors_in_conditioning, update_digest

if TYPE_CHECKING:
    from .denoiser import MaskedDenoiser

Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Tokens:
    """Sequences of token ids; make them with `Tokens.of`.

    Attributes:
        ids: [N, n], token ids; 0 after the end of a sequence.
        lengths: [N], numbers of tokens without padding.
        free: [N, n], positions to be generated.
        hidden: [N, n], positions that stay masked.
        sequence: [N], the sequence that a sample belongs to; blocks of one sequence share it.
        conditioning: one entry per sample, passed to the network.
    """

    ids: Integers
    lengths: Integers
    free: Booleans
    hidden: Booleans
    sequence: Integers
    conditioning: Any = None

    @classmethod
    def of(
        cls,
        sequences: Any,
        *,
        lengths: Sequence[int] | None = None,
        prefixes: int | Sequence[int] = 0,
        known: Any = None,
        conditioning: Any = None,
    ) -> Tokens:
        """Make data from sequences.

        Args:
            sequences: integer tensor or array [N, n], or a list of sequences of different lengths.
            lengths: number of tokens of each row of an array; the rest is padding.
            prefixes: number of tokens at the beginning that are always known, one for all sequences or one each.
            known: [N, n], True where a token is always known: special tokens, or the context of an infilling.
            conditioning: one entry per sample, or a dict of such entries; the network gets it after tokens and time.
        """
        ids, ends = _gathered(sequences, lengths)
        N, n = ids.shape
        place = np.arange(n)
        starts = np.broadcast_to(np.asarray(prefixes, dtype=np.int64), (N,))
        if (starts < 0).any() or (starts > ends).any():
            i = int(((starts < 0) | (starts > ends)).argmax())
            raise ValueError(
                f"A prefix must lie in its sequence, but sequence {i} has {ends[i]} tokens and a prefix of {starts[i]}."
            )
        free = (place < ends[:, None]) & (place >= starts[:, None])
        if known is not None:
            known = np.asarray(known, dtype=bool)
            if known.shape != ids.shape:
                raise ValueError(f"known must have the shape of the tokens, {ids.shape}, but has {known.shape}.")
            free &= ~known
        if not free.any(axis=1).all():
            raise ValueError(
                f"Sequence {int((~free.any(axis=1)).argmax())} has no token to generate: all of it is known. Leave it out, or "
                "shorten its prefix."
            )
        check_conditioning(conditioning, N)
        return cls(
            ids,
            ends,
            free,
            np.zeros_like(free),
            sequence=np.arange(N),
            conditioning=tensors_in_conditioning(conditioning),
        )

    @classmethod
    def read(cls, data: Any, samples: int | None = None) -> Tokens:
        """Return ``data`` as `Tokens`, converted by `of` if needed, or only its first ``samples``."""
        tokens = data if isinstance(data, Tokens) else cls.of(data)
        if samples is None:
            return tokens
        whole_number(samples, f"samples must be a whole number from 1 to {len(tokens)}", 1, len(tokens))
        return tokens.take(range(samples))

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return (
            f"<Tokens: {len(self):,} samples, {self.sizes.min()} to {self.sizes.max()} tokens of each to be generated>"
        )

    @property
    def sizes(self) -> Integers:
        """Number of tokens to be generated in each sample [N]."""
        return np.asarray(self.free.sum(axis=1))

    @property
    def fingerprint(self) -> str:
        """Digest of ids, roles and conditioning."""
        digest = hashlib.sha256(str(self.ids.shape).encode())
        for array in (self.ids, self.lengths, self.free, self.hidden):
            digest.update(np.ascontiguousarray(array).tobytes())
        update_digest(digest, self.conditioning)
        return digest.hexdigest()[:16]

    def take(self, indices: Iterable[int]) -> Tokens:
        """The samples at ``indices``."""
        chosen = list(indices)
        rows = {name: getattr(self, name)[chosen] for name in ("ids", "lengths", "free", "hidden", "sequence")}
        return Tokens(**rows, conditioning=slice_conditioning(self.conditioning, chosen))

    def blocks(self, size: int) -> Tokens:
        """Repeat every sequence once per block of ``size`` free tokens, for models that generate block by block.

        In each sample the tokens before its block are known and those after it stay masked, as in semi-autoregressive decoding.
        """
        whole_number(size, "A block must have a whole number of tokens, at least 1")
        rank = np.where(self.free, self.free.cumsum(axis=1) - 1, -1)
        counts = -(-self.sizes // size)
        sample = np.repeat(np.arange(len(self)), counts)
        block = np.concatenate([np.arange(count) for count in counts])[:, None]
        rank = rank[sample] // size  # stays −1 at positions that are not free
        repeated = self.take(sample.tolist())
        return replace(repeated, free=rank == block, hidden=repeated.hidden | (rank > block))

    def check(self, denoiser: MaskedDenoiser) -> None:
        """Raise unless ``denoiser`` can take these tokens."""
        if (most := int(self.lengths.max())) > denoiser.length:
            raise ValueError(
                f"The model takes sequences of up to {denoiser.length} tokens, but sample {int(self.lengths.argmax())} has "
                f"{most}. Cut the sequences."
            )
        inside = np.arange(self.ids.shape[1]) < self.lengths[:, None]
        _refuse(
            inside & ((self.ids < 0) | (self.ids >= denoiser.vocabulary)),
            self.ids,
            f"Token ids must lie in 0 … {denoiser.vocabulary - 1}",
        )
        _refuse(
            self.free & (self.ids == denoiser.mask_token),
            self.ids,
            "Data must not contain the mask token",
        )
        if denoiser.pad_token is None and (self.lengths < self.lengths.max()).any():
            raise ValueError(
                f"Sequences have {self.lengths.min()} to {most} tokens, so short ones must be padded. Set pad_token= of "
                "MaskedDenoiser; the network must ignore such tokens."
            )


def _refuse(wrong: Booleans, ids: Integers, rule: str) -> None:
    if wrong.any():
        i, place = np.argwhere(wrong)[0]
        raise ValueError(
            f"{rule}, but sample {i} has {ids[i, place]} at position {place}. Check tokenizer, vocabulary and mask_token."
        )


def _gathered(sequences: Any, lengths: Sequence[int] | None) -> tuple[Integers, Integers]:
    """Ids [N, n], 0 after the end of each sequence, and lengths [N]."""
    if isinstance(sequences, (list, tuple)) and lengths is None:
        rows = [whole_tokens(sequence, (1,)) for sequence in sequences]
        lengths = [row.size for row in rows]
        ids = np.zeros((len(rows), max(lengths, default=0)), dtype=np.int64)
        for place, row in enumerate(rows):
            ids[place, : row.size] = row
    else:
        ids = whole_tokens(sequences, (2,))
    N, n = ids.shape
    if N == 0 or n == 0:
        raise ValueError(f"There are no tokens: shape {ids.shape}. Give at least one sequence of one token.")
    ends = np.full(N, n) if lengths is None else np.asarray(lengths, dtype=np.int64)
    if ends.shape != (N,) or (ends < 1).any() or (ends > n).any():
        raise ValueError(f"lengths must be {N} numbers of tokens from 1 to {n}, not {lengths!r:.80}.")
    return np.where(np.arange(n) < ends[:, None], ids, 0), ends


def whole_tokens(values: Any, dimensions: tuple[int, ...]) -> Integers:
    """Token ids from an array or tensor with one of these numbers of dimensions; anything but integers is refused."""
    array = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    if array.ndim not in dimensions or (array.dtype.kind not in "iu" and array.size):
        raise ValueError(
            f"Tokens must be whole numbers [samples, length], or a list of sequences of them, not an array of shape "
            f"{array.shape} and dtype {array.dtype}. Tokenize text first."
        )
    return array.astype(np.int64)
