"""Settings that every test shares; they must be in place before numpy, numba or torch is first imported."""

from __future__ import annotations

import os

# Results do not depend on the number of threads, but the machine's other work does.
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MKL_NUM_THREADS"] = "1"
os.environ["NUMBA_NUM_THREADS"] = str(min(2, int(os.environ.get("NUMBA_NUM_THREADS", "2"))))

from hypothesis import settings

# derandomize: a failure on one machine is a failure on every machine. No deadline: the first example imports torch.
settings.register_profile("dpstride", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("dpstride")
