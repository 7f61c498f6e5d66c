"""Beside the pipeline. Fewer network evaluations: evaluate a few times, judge the result, evaluate where it matters, stop.

gaps.py     the uncertainty between evaluated times
regret.py   how far the chosen paths may be from the best, and between which evaluated times that is decided
report.py   evaluations spent and saved, and the regret, as JSON
loop.py     the loop, and `estimate_adaptively`
scores.py   how far scores from few times may be from those of every time
"""
