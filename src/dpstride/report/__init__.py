"""Stage 8. Tables and figures, from saved results only."""
