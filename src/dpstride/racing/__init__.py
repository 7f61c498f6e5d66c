"""Schedules chosen by measured samples: candidates race on the same noises, and the winner is measured again on others.

Above the stages, beside `pipeline.py`: `candidates` (paths to race), `sampling` (what draws), `measure` (what says how
close samples are to real data), `arena` (drawing and measuring, kept), `halving` (the race of one budget), `finish` (the
honest end), `outcome` (what is reported) and `run`, which does it all.
"""
