"""kt-kernel's experts as a peer: in a process of its own, stopped while others are measured.

QBENCH_KT_PYTHON names a Python that has kt-kernel, which asks for a torch of its own. Its workers are kept from
spinning against its dispatcher (kt_nospin.cpp): without that it is several times slower on a machine of two cores.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).parent

# name -> class of kt_kernel_ext.moe, what the weights become
BACKENDS = {
    "BF16": ("AMXBF16_MOE", "bf16"),
    "INT8": ("AMXInt8_MOE", "bf16"),
    "INT4": ("AMXInt4_MOE", "bf16"),
    "FP8": ("AMXFP8_MOE", "fp8_blocks"),
    "RAWINT4": ("AMXInt4_KGroup_MOE", "int4_groups"),
    "Q4_K": ("MOE", "q4_k"),
    "Q8_0": ("MOE", "q8_0"),
}


@cache
def kt_python() -> str | None:
    python = os.environ.get("QBENCH_KT_PYTHON", sys.executable)
    found = subprocess.run([python, "-c", "import kt_kernel"], capture_output=True)
    return python if found.returncode == 0 and shutil.which("g++") else None


class KtLayer:
    """One layer, loaded; a call [M, k] after one of warm_up [1, k] gives its milliseconds and the first output."""

    def __init__(self, backend: str, sizes: dict[str, int], weights: dict[str, np.ndarray], folder: Path) -> None:
        """sizes: hidden_size, ffn_size, num_experts, num_chosen, max_tokens, threads; weights: as the worker says"""
        if kt_python() is None:
            pytest.skip("kt-kernel is not installed: QBENCH_KT_PYTHON names no Python that has it")
        cls, fmt = BACKENDS[backend]
        np.savez(folder / "weights.npz", **weights)
        preload = folder / "kt_nospin.so"
        subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", preload, FOLDER / "kt_nospin.cpp"], check=True)
        self._process = subprocess.Popen(
            [kt_python(), FOLDER / "kt_moe_worker.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | {"LD_PRELOAD": str(preload)},
        )
        self._ask(sizes | {"cls": cls, "format": fmt, "weights": str(folder / "weights.npz")})
        self._process.send_signal(signal.SIGSTOP)

    def __call__(self, chosen: np.ndarray, warm_up: np.ndarray) -> tuple[float, np.ndarray]:
        self._process.send_signal(signal.SIGCONT)
        answer = self._ask({"chosen": chosen.tolist(), "warm_up": warm_up.tolist()})
        self._process.send_signal(signal.SIGSTOP)
        return answer["ms"], np.array(answer["y"])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _ask(self, question: dict) -> dict:
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("=> "):
                return json.loads(line[3:])
        raise RuntimeError(f"kt-kernel's process ended with code {self._process.wait()}")
