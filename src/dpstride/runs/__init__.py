"""Infrastructure of long jobs, whatever they compute: writing files, locks, saved progress, workers, a run's identity.

It is below every stage and knows nothing of diffusion.
"""
