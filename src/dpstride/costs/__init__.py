"""Stage 5. Statistics → a table L[t, s] of step costs; one file per decomposable objective."""
