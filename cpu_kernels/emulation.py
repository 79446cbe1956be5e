"""AMX and AVX-VNNI on machines without them: the library that executes their instructions.

For a process that checks and never times.
"""

import os
from pathlib import Path

from cpu_kernels import _ext

# Emulated instruction set -> its name, and the sets that its kernels use as well: rows of op_table() require some.
TITLES = {"amx": "AMX", "avx_vnni": "AVX-VNNI"}
AROUND = {"amx": ("avx512", "avx512_vnni", "avx512_bf16"), "avx_vnni": ("avx2",)}


def require_around(isa: str) -> None:
    """Check that the kernels of `isa` can run here once its instructions are emulated.

    raises   RuntimeError if the processor, or the one that QBENCH_CPU pretends, lacks one of AROUND
    """
    missing = [name for name in AROUND[isa] if name not in _ext.features()]
    if missing:
        has = ", ".join(_ext.features())
        raise RuntimeError(
            f"{TITLES[isa]} kernels also need {', '.join(missing)}, which is not emulated; this processor has {has}"
        )


def amx_emulator() -> Path:
    """The library to preload.

    raises   RuntimeError where the extension came without it: it is built by gcc, for Linux on x86-64
    """
    library = Path(_ext.__file__).with_name("libqbench_amx_emulator.so")
    if not library.is_file():
        raise RuntimeError("the emulator is for Linux on x86-64, and gcc builds it")
    return library


def with_amx_emulator(environment: dict[str, str], library: Path | None = None) -> dict[str, str]:
    """The environment of a process of its own that emulates AMX and AVX-VNNI; `emulated_features` names them there."""
    preload = [environment.get("LD_PRELOAD"), str(library or amx_emulator())]
    return environment | {"LD_PRELOAD": os.pathsep.join(filter(None, preload))}
