"""Stage 7. What a schedule is worth: held-out likelihood, samples."""
