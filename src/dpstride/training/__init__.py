"""Training with the paper's objectives; makes the models of the zoo. Start at `train.train`."""
