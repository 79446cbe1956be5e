"""AMX where there is none: the library that executes its instructions, for a process that checks and never times."""

import os
from pathlib import Path

from cpu_kernels import _ext


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
