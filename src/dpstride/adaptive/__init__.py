"""Beside the pipeline. Fewer network evaluations: evaluate a few times, believe, evaluate where it matters, stop.

gaps.py     what is unknown between evaluated times
regret.py   how far the chosen paths may be from the best, and between which evaluated times that is decided
report.py   what was spent, saved and believed, as JSON
loop.py     the loop, and `estimate_adaptively`
scores.py   how far scores from few times may be from those of every time
"""
