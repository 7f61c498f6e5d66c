"""Tokens: how many to reveal in each of K rounds, for a model whose conditionals are known."""

import numpy as np
import torch

import dpstride

topics, letters, length = 16, 40, 48
rng = np.random.default_rng(0)
p = torch.tensor(rng.dirichlet(np.full(letters, 0.1), topics))  # every topic has letters of its own
texts = np.stack([rng.choice(letters, length, p=p[rng.integers(topics)]) for _ in range(768)])


def network(tokens: torch.Tensor) -> torch.Tensor:
    """Your network goes here; this one is exact: which topic it may be, and what that topic says."""
    logs = torch.cat([p.clamp(min=1e-12), torch.ones(topics, 1)], dim=1).log()  # a mask, token 40, tells nothing
    topic = logs[:, tokens].sum(dim=2).softmax(dim=0)
    return (topic.T @ p).clamp(min=1e-12).log()[:, None].expand(-1, length, -1)


denoiser = dpstride.MaskedDenoiser(network, vocabulary=letters, mask_token=letters, length=length)
schedules = dpstride.optimise_masked(denoiser, texts[:512])
heldout = dpstride.estimate_masked(denoiser, texts[512:], seed=1)
print("rounds  even  cosine   best   bits/token, held-out; tokens per round of the best")
for K in (1, 2, 4, 8, 16):
    rules = (dpstride.even_unmasking(length, K), dpstride.cosine_unmasking(length, K), schedules[K])
    scores = "  ".join(f"{dpstride.score_masked(heldout, rule)[0]:.3f}" for rule in rules)
    print(f"{K:6}  {scores}   {', '.join(map(str, schedules[K].tokens_per_round[:8]))}")
samples = dpstride.sample_masked(denoiser, schedules[4], n=8)
print(f"samples: {tuple(samples.shape)}, in 4 rounds; tokens masked before each: {schedules[4].counts[:-1]}")
