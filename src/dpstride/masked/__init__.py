"""Masked (absorbing) diffusion of tokens: the same method on text, code, music or image tokens, in the same stages.

Generation starts from n masks and reveals some tokens in each of K rounds, so a schedule says how many are masked after each.

    process.py     1  how many tokens are masked: the grid of counts
    denoiser.py    2  network → probabilities of masked tokens
    tokens.py      2  data: sequences, what is always known of them, what stays masked, and padding
    estimate.py    3  one network pass per (count, batch) → statistics, by passes.py
    adaptive.py    3  the same at few counts, with lines between
    statistics.py  3  c_t of every sample; saved and loaded
    schedule.py    4  counts of K rounds, or times in (0, 1]; strides.py: hand-made ones
    costs.py       6  (t − s) c_t as lines for `solve`; of chains by counts and by times
    evaluate.py    7  bits/token of a schedule by following its chain
    sampling.py    7  samples; orders.py: which tokens come first
    pipeline.py       all of it in one call

Everything that is not about tokens is shared with the Gaussian stages: noise streams, probes, solver, progress, workers,
files.
"""
