"""`python -m checks.lock`: write constraints.txt, the exact versions of the packages that `make test` runs with."""

import sys
from importlib.metadata import distributions
from pathlib import Path

FILE = Path(__file__).parents[1] / "constraints.txt"
# The torch that a machine already has is used; packages of the environment itself, and ours, are not locked.
LEFT_OUT = ("torch", "triton", "nvidia-", "cuda-", "pip", "setuptools", "wheel", "qbench-llm", "llama-cpp-python")
HEAD = "# Versions that `make test` was green with. `python -m checks.lock` writes this file from .venv.\n"


def locked() -> str:
    found = {one.metadata["Name"].lower().replace("_", "-"): one.version for one in distributions()}
    names = sorted(name for name in found if not is_left_out(name))
    return HEAD + "".join(f"{name}=={found[name].partition('+')[0]}\n" for name in names)


def is_left_out(name: str) -> bool:
    return any(name == one or (one.endswith("-") and name.startswith(one)) for one in LEFT_OUT)


def main() -> int:
    FILE.write_text(locked())
    return 0


if __name__ == "__main__":
    sys.exit(main())
