"""Schedules chosen by measured samples: candidates race on the same noise, and the winner is measured again on fresh noise.

Above the stages, beside `pipeline.py`: `candidates` (paths to race), `sampling` (the sampler), `measure` (the distance from
real data), `arena` (drawing, measuring, caching), `halving` (the race of one budget), `finish` (the unbiased final
measurement), `outcome` (the report) and `run`, the entry point.

The words: a *wish* is the user's request. The *field* is all candidates; those that race at one number of steps are its
*runners*, and their race is a *heat*. The *arena* holds what all runners share: model, noise, real data and measure. The
*purse* is the number of network evaluations that may still be spent. An *event* is the whole, ready to run.
"""
