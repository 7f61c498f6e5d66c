"""A process that has imported everything and makes children by fork, so that a run starts in milliseconds, not seconds.

Each line of its input is a JSON list: the folder to work in, the environment to add, and the words of a command
(``dpstride …``, or ``job …``, a function of `jobs`). It answers with the child's pid, and with "pid code" when one ends.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path

import torch

import dpstride.adaptive.loop
import dpstride.evaluate.stream
import dpstride.statistics.estimate
import dpstride.training.train  # noqa: F401
from dpstride.cli import main as dpstride_main


def child(folder: str, environment: dict[str, str], words: list[str]) -> None:
    os.chdir(folder)
    os.environ.update(environment)
    sys.path[:0] = [folder, str(Path(__file__).parent)]
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    torch.set_num_threads(2)
    code = 1
    try:
        if words[0] == "dpstride":
            sys.argv = words
            dpstride_main(words[1:])
        else:
            import jobs

            getattr(jobs, words[1])(*words[2:])
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def wait(pid: int) -> None:
    _, status = os.waitpid(pid, 0)
    say(f"{pid} {os.waitstatus_to_exitcode(status)}")


def say(line: str) -> None:
    """In one write: print() makes several, and those of two threads may mix."""
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    say("ready")
    for line in sys.stdin:
        folder, environment, words = json.loads(line)
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            child(folder, environment, words)
        say(str(pid))
        threading.Thread(target=wait, args=(pid,), daemon=True).start()
