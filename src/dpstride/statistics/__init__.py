"""Stage 3. One network pass per (t, batch) → `Statistics`, from which every later number is computed."""
