"""Run a dpstride command as a user would type it, shown first; it resumes after an interruption as the command does."""

from __future__ import annotations

from dpstride.cli import main


def dpstride(words: list[str]) -> None:
    print("$ dpstride", *words, flush=True)
    try:
        main(words)
    except SystemExit as stop:
        if stop.code:
            raise
