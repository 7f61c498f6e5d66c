"""Masked (absorbing) diffusion of tokens: the same method on text, code, music or image tokens, in the same stages.

Generation starts from n masks and reveals some tokens in each of K rounds; a schedule is the number of tokens that are masked
after each.

    process.py     1  the grid of counts: numbers of masked tokens
    denoiser.py    2  network → probabilities of masked tokens
    tokens.py      2  data: sequences with known, free and hidden positions, and padding
    estimate.py    3  one network pass per (count, batch) → statistics, by passes.py
    adaptive.py    3  the same at few counts, interpolated linearly
    statistics.py  3  c_t of every sample; saved and loaded
    schedule.py    4  counts of K rounds, or times in (0, 1]; strides.py: hand-made ones
    costs.py       6  (t − s) c_t as lines for `solve`, for chains by counts and by times
    evaluate.py    7  bits/token of a schedule by following its chain
    sampling.py    7  samples; orders.py: the order in which tokens are revealed
    pipeline.py       all of it in one call

Everything that is not specific to tokens is shared with the Gaussian stages: noise streams, probes, solver, progress,
workers, files.
"""
