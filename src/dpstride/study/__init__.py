"""The paper's experimental section for any model, at the level of the pipeline: it uses the stages, and no stage uses it.

plan.py      samples and network evaluations, known in advance
run.py       the experiments, each of which can be resumed
features.py  the choice of features by name
distances.py distances of samples from real images
results.py   the results, as JSON
agreement.py agreement of bits/dim with a distance
"""
