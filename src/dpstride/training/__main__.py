"""``python -m dpstride.training``: the same as ``dpstride train``."""

from dpstride.training.command import train_command

if __name__ == "__main__":
    train_command(prog_name="python -m dpstride.training")
