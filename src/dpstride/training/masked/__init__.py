"""Training of small masked diffusion models of characters."""
