"""Stage 7. The quality of a schedule: held-out likelihood, samples."""
