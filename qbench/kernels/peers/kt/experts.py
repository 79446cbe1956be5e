"""kt-kernel's experts, in a process of their own: another Python, for a torch of its own, and idle workers that spin.

QBENCH_KT_PYTHON names a Python that has kt-kernel. The process is stopped while others are timed. If there is a g++,
its idle workers are kept from spinning against its dispatcher (nospin.cpp), without which it is several times slower on
a machine of two cores; NAMES says which of them ran.
"""

import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypedDict

import numpy as np

from qbench.kernels.benchmark import Absent
from quant.present import present

FOLDER = Path(__file__).parent
VARIABLE = "QBENCH_KT_PYTHON"
NAMES = {True: "kt-kernel-nospin", False: "kt-kernel"}  # with nospin.cpp, as it is installed
TRIAL_RUNS = 3


@dataclass(frozen=True, slots=True)
class Backend:
    """A class of kt_kernel_ext.moe, its weight format, and the required multiple of rows."""

    cls: str
    format: str
    multiple: int
    is_gguf: bool = False


BACKENDS = {
    "BF16": Backend("AMXBF16_MOE", "bf16", 128),
    "INT8": Backend("AMXInt8_MOE", "bf16", 128),
    "INT4": Backend("AMXInt4_MOE", "bf16", 128),
    "FP8": Backend("AMXFP8_MOE", "fp8_blocks", 128),
    "RAWINT4": Backend("AMXInt4_KGroup_MOE", "int4_groups", 128),
    "Q4_K": Backend("MOE", "q4_k", 256, is_gguf=True),
    "Q8_0": Backend("MOE", "q8_0", 256, is_gguf=True),  # which refuses others, though its blocks are of 32
}


def contender_name() -> str:
    return NAMES[has_spin_fix()]


@cache
def has_spin_fix() -> bool:
    return shutil.which("g++") is not None


@cache
def kt_python() -> str:
    """raises Absent if there is no kt-kernel"""
    python = os.environ.get(VARIABLE)
    if not python:
        raise Absent(f"{VARIABLE} names no Python that has kt-kernel")
    try:
        subprocess.run([python, "-c", "import kt_kernel"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Absent(f"{VARIABLE}={python} does not import kt_kernel") from error
    return python


class KtSizes(TypedDict):
    hidden_size: int
    ffn_size: int
    num_experts: int
    num_chosen: int
    max_tokens: int
    threads: int


class KtSpec(KtSizes):
    """The first line to the worker. weights: path of an .npz file"""

    cls: str
    format: str
    weights: str


class KtCalls(TypedDict):
    """Every line after it. calls: path of an .npz file; output: path of the last call's output"""

    calls: str
    output: str


class KtAnswer(TypedDict, total=False):
    """variant: kt-kernel's build for this processor, in the answer to the first line; seconds: of all calls"""

    variant: str
    seconds: float


class KtLayer:
    """One layer in one backend, loaded.

    name      of the class that runs, and of kt-kernel's build
    sizes     hidden_size, ffn_size, num_experts, num_chosen, max_tokens, threads
    weights   gate, up [D, I, K] and down [D, K, I] of distinct experts, used in turn: float32, or uint8 GGUF blocks
    raises    Absent if there is no kt-kernel, or if this backend of it does not start
    """

    def __init__(self, backend: str, sizes: KtSizes, weights: dict[str, np.ndarray]) -> None:
        about = BACKENDS[backend]
        self.folder = TemporaryDirectory()
        np.savez(self.path("weights.npz"), allow_pickle=False, **weights)
        self.process = subprocess.Popen(
            [kt_python(), FOLDER / "worker.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=os.environ | ({"LD_PRELOAD": self.spin_fix()} if has_spin_fix() else {}),
            encoding="utf-8",
        )
        spec: KtSpec = {**sizes, "cls": about.cls, "format": about.format, "weights": self.path("weights.npz")}
        variant = self.ask(spec).get("variant")
        self.name = f"{about.cls} ({variant})" if variant else about.cls

    def path(self, name: str) -> str:
        return str(Path(self.folder.name) / name)

    def spin_fix(self) -> str:
        library = self.path("nospin.so")
        subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", library, FOLDER / "nospin.cpp"], check=True)
        return library

    def ask(self, question: KtSpec | KtCalls) -> KtAnswer:
        """Its answer; it runs meanwhile, and at no other time."""
        self.process.send_signal(signal.SIGCONT)
        stdin, stdout = present(self.process.stdin), present(self.process.stdout)
        stdin.write(json.dumps(question) + "\n")
        stdin.flush()
        for line in stdout:
            if line.startswith("=> "):
                self.process.send_signal(signal.SIGSTOP)
                os.waitpid(self.process.pid, os.WUNTRACED)  # until all of its threads have stopped
                return json.loads(line[3:])
        raise Absent(f"kt-kernel's process ended with code {self.process.wait()}")

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.folder.cleanup()


class KtExperts:
    """Calls of a layer, one for each route, timed in its process.

    x        [M, K] float32, converted before the clock starts; so is not the output
    routes   chosen [M, k] int64 and weights [M, k] float32 of each call
    """

    def __init__(self, layer: KtLayer, x: np.ndarray, routes: list[tuple[np.ndarray, np.ndarray]]) -> None:
        self.layer, self.how = layer, layer.name
        chosen, weights = map(np.stack, zip(*routes, strict=True))
        np.savez(layer.path(f"{len(x)}.npz"), x=x, chosen=chosen, weights=weights)
        self.question: KtCalls = {"calls": layer.path(f"{len(x)}.npz"), "output": layer.path("y.npy")}

    def run(self) -> float:
        return present(self.layer.ask(self.question).get("seconds"))

    def output(self) -> np.ndarray:
        return np.load(self.question["output"])


def fastest(contenders: dict[str, KtExperts]) -> KtExperts:
    """By the best of some runs; named as the one that it is of those that were tried."""
    seconds = {name: min(one.run() for _ in range(TRIAL_RUNS)) for name, one in contenders.items()}
    best = min(seconds, key=seconds.__getitem__)
    contenders[best].how = f"{contenders[best].layer.name}, the fastest of {', '.join(contenders)}"
    return contenders[best]
