"""qbench: quantize a language model many ways, and measure what each costs on this machine."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.version import __version__ as __version__

if TYPE_CHECKING:
    import pandas as pd

# torch's OpenMP threads by default spin for milliseconds after each parallel loop, and keep a core from the
# kernels' own threads that come next. About 1000 turns bridge two loops in a row; then they sleep. The library
# reads this when torch is first imported, and a policy that the user has set stands.
SPIN_COUNT = "1000"
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)

# QBENCH_CPU pretends a lesser processor (see cpu_kernels). torch, oneDNN and MKL each have a switch of their own, which
# they read when they are first used. A switch that the user has set stands.
PRETENDED_LIBRARIES = {
    "scalar": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", "MKL_ENABLE_INSTRUCTIONS": "AVX512"},
    "avx512_vnni": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI", "MKL_ENABLE_INSTRUCTIONS": "AVX512_E1"},
}
for _name, _value in PRETENDED_LIBRARIES.get(os.environ.get("QBENCH_CPU", ""), {}).items():
    os.environ.setdefault(_name, _value)


def results(paths: str | Path | Iterable[str | Path] | None = None) -> "pd.DataFrame":
    """The latest measurement of each case, one row each: what `qbench query "from results"` sees.

    paths    files of records, or folders of them; by default `results` and `runs` where they are here
    raises   InputError for a file that cannot be read, and where there is none
    """
    from qbench.measure.records.record_files import default_folders
    from qbench.store import load_records

    return load_records(default_folders() if paths is None else paths)
