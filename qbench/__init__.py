"""qbench: quantize a language model many ways, and measure what each costs on this machine."""

import os
from importlib.metadata import PackageNotFoundError, version

# torch's OpenMP threads by default spin for milliseconds after each parallel loop, and keep a core from the
# kernels' own threads that come next. About 1000 turns bridge two loops in a row; then they sleep. The library
# reads this when torch is first imported, and a policy that the user has set stands.
SPIN_COUNT = "1000"
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)

try:
    __version__ = version("qbench-llm")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+source"
