"""The paper's experimental section for any model, at the level of the pipeline: it uses the stages and is used by none.

plan.py      what will be drawn and evaluated, and how long that takes
run.py       the experiments, each resumed where it stopped
results.py   what they found, as JSON
agreement.py whether bits/dim and a distance tell the same story
"""
