"""All that a long job needs, whatever it computes: one writer of files, locks, kept progress, workers, a run's identity.

It stands below every stage and knows nothing of diffusion.
"""
