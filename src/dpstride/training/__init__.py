"""Training with the paper's objectives; makes the models of the zoo."""

from dpstride.training.train import TrainingSettings, train

__all__ = ["TrainingSettings", "train"]
