"""AMX on machines without it: the library that executes its instructions, for a process that checks and never times."""

import os
from pathlib import Path

from cpu_kernels import _ext

# The instruction sets that AMX kernels use around their tiles: rows of op_table() for amx require some of them.
AROUND_TILES = ("avx512", "avx512_vnni", "avx512_bf16")


def require_around_tiles() -> None:
    """Check that the AMX kernels can run here once their tiles are emulated.

    raises   RuntimeError if the processor, or the one that QBENCH_CPU pretends, lacks one of AROUND_TILES
    """
    missing = [name for name in AROUND_TILES if name not in _ext.features()]
    if missing:
        has = ", ".join(_ext.features())
        raise RuntimeError(
            f"AMX kernels also need {', '.join(missing)}, which is not emulated; this processor has {has}"
        )


def amx_emulator() -> Path:
    """The library to preload.

    raises   RuntimeError where the extension came without it: it is built by gcc, for Linux on x86-64
    """
    library = Path(_ext.__file__).with_name("libqbench_amx_emulator.so")
    if not library.is_file():
        raise RuntimeError("the AMX emulator is for Linux on x86-64, and gcc builds it")
    return library


def with_amx_emulator(environment: dict[str, str], library: Path | None = None) -> dict[str, str]:
    """The environment of a process of its own that has AMX by emulation; `emulated_features` names it there."""
    preload = [environment.get("LD_PRELOAD"), str(library or amx_emulator())]
    return environment | {"LD_PRELOAD": os.pathsep.join(filter(None, preload))}
