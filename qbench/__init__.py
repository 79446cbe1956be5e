"""qbench: quantize a language model many ways, and measure the cost of each on this machine."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from qbench.version import __version__ as __version__

if TYPE_CHECKING:
    from qbench.api import LoadedModel, bench, compare, evaluate, load, plot, quantize, recommend, results, sweep

__all__ = ["LoadedModel", "bench", "compare", "evaluate", "load", "plot", "quantize", "recommend", "results", "sweep"]

# torch's OpenMP threads by default spin for milliseconds after each parallel loop, and keep a core from the
# kernels' own threads that come next. About 1000 turns bridge two loops in a row; then they sleep. The library
# reads this when torch is first imported, and a policy that the user has set is kept.
SPIN_COUNT = "1000"
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)

# QBENCH_CPU pretends a lesser processor (see cpu_kernels). torch, oneDNN and MKL each have a switch of their own, which
# they read when they are first used. A switch that the user has set is kept.
PRETENDED_LIBRARIES = {
    "scalar": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx_vnni": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2_VNNI", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "avx512_vnni": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "MKL_ENABLE_INSTRUCTIONS": "AVX512_E1"},
}
for _name, _value in PRETENDED_LIBRARIES.get(os.environ.get("QBENCH_CPU", ""), {}).items():
    os.environ.setdefault(_name, _value)


def __getattr__(name: str) -> Any:
    """The names of the API, imported when they are first used."""
    if name in __all__:
        return getattr(import_module("qbench.api"), name)
    raise AttributeError(f"module 'qbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
