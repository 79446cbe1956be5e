"""Threads, precision, device, experts within a memory limit and attention code, by the names that users give.

Devices:
cpu          this machine's processor, by cpu_kernels
cuda         an NVIDIA GPU, by gpu_kernels
interpreter  gpu_kernels by Triton's interpreter on the CPU: shows that they are right, and is slow beyond use

Code that computes attention:
textbook  product, softmax, product in torch; the scores of a whole forward pass are in memory at once
sdpa      torch.nn.functional.scaled_dot_product_attention
kernel    cpu_kernels, only on the CPU
triton    gpu_kernels, only on a device

Nobody has to choose the attention: the CPU then takes its kernels for models that they can run and torch for others,
and a device takes gpu_kernels. A choice holds for every layer, or is refused.
"""

import os
from importlib.util import find_spec

from qbench.words.written import nearest, parse_bytes, parse_share
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv_names import FLOAT32 as FLOAT32_KV

MAX_THREADS = 1024  # as the thread pool of cpu_kernels; far beyond it torch crashes


def check_threads(threads: int | None, where: str = "") -> None:
    """raises InputError unless `threads` is None or a number that torch and the kernels can run with"""
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise InputError(f"{where}threads is {threads}, expected 1 to {MAX_THREADS}")


def set_threads(threads: int | None) -> None:
    """Run torch and the kernels with this number of threads; None: as they are. raises InputError as `check_threads`"""
    check_threads(threads)
    if threads is None:
        return
    import torch

    torch.set_num_threads(threads)
    if has_cpu_kernels():
        import cpu_kernels

        cpu_kernels.set_num_threads(threads)


FAST = "fast"  # as fast as each format allows: for many tokens, K-quants and f16 may be rounded further
EXACT = "exact"  # weights, keys and values as they are stored, for any number of tokens
FLOAT32 = "float32"  # weights dequantized once, everything in float32: the loss of the format alone
PRECISIONS = (FAST, EXACT, FLOAT32)


def check_compute(name: str) -> None:
    """raises InputError if the name is not one of PRECISIONS"""
    if name == "auto":
        raise InputError(f"compute 'auto' is called {FAST!r} now")
    if name not in PRECISIONS:
        raise InputError(f"unknown compute {name!r}; known: {', '.join(PRECISIONS)}{nearest(name, PRECISIONS)}")


AUTO_ISA = "auto"  # the best instruction set that the machine has
ISAS = ("scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx")  # values of QBENCH_ISA


CPU, CUDA, INTERPRETER = DEVICES = ("cpu", "cuda", "interpreter")
INTERPRET = "TRITON_INTERPRET"  # Triton reads it as it is imported
GPUS = ((8, 0), (9, 0), (10, 0))  # compute capabilities that the kernels have tile shapes for


def check_kv_format(name: str) -> None:
    """raises InputError for a KV format that is unknown, or that only a recipe can name"""
    from quant.kv import KV_FORMATS  # imports numpy

    known = (FLOAT32_KV, *KV_FORMATS)
    if name == "dense-f32":
        raise InputError(f"KV format {name!r} is called {FLOAT32_KV!r} now")
    if name not in known:
        raise InputError(f"unknown KV format {name!r}; known: {', '.join(known)}{nearest(name, known)}")
    if name != FLOAT32_KV and KV_FORMATS[name].calibrated:
        raise InputError(f"KV format {name} needs scales from calibration; give it with a recipe, as in q8_0+{name}")


def check_limit(text: str) -> None:
    """raises InputError for text that is neither bytes nor a share"""
    if parse_share(text) is None:
        parse_bytes(text)


def check_device_name(name: str) -> None:
    """raises InputError for a name that is not in DEVICES"""
    if name not in DEVICES:
        raise InputError(f"device {name!r} is unknown; known: {', '.join(DEVICES)}{nearest(name, DEVICES)}")


def check_device(name: str, compute: str = FAST) -> None:
    """raises InputError for a name that is not in DEVICES, a device that is not here, or a compute that it lacks"""
    check_device_name(name)
    if name == CPU:
        return
    if compute != FAST:
        raise InputError(f"compute {compute} runs on the CPU alone; device {name} has {FAST}")
    if find_spec("triton") is None:
        raise InputError(f"device {name} needs triton, which is not installed; pip install triton")
    if name == INTERPRETER:
        if os.environ.get(INTERPRET) != "1":
            raise InputError(f"device {name} needs {INTERPRET}=1 in the environment")
        return
    import torch

    if not torch.cuda.is_available():
        raise InputError(f"device {name}: there is no CUDA device that torch can use here; run this where there is one")
    capability = torch.cuda.get_device_capability()
    if capability not in GPUS:
        known = ", ".join(f"{major}.{minor}" for major, minor in GPUS)
        got = "{}.{}".format(*capability)
        raise InputError(f"device {name}: got a GPU of compute capability {got}, expected one of {known}")


# dynamic: those that were used last, whichever they are. The others fix experts that stay: as many in each layer, those
# that were chosen most often, those of the first layers, those of the last.
DYNAMIC, UNIFORM, FREQUENCY, EARLY, LATE = "dynamic", "uniform", "frequency", "early", "late"
PLACEMENTS = (DYNAMIC, UNIFORM, FREQUENCY, EARLY, LATE)


def check_placement(name: str) -> None:
    if name not in PLACEMENTS:
        known = ", ".join(PLACEMENTS)
        raise InputError(f"expert placement {name!r} is unknown; known: {known}{nearest(name, PLACEMENTS)}")


ATTENTIONS = TEXTBOOK, SDPA, KERNEL, TRITON = "textbook", "sdpa", "kernel", "triton"
IN_TORCH = (TEXTBOOK, SDPA)


def check_attention_name(name: str) -> None:
    """raises InputError if the name is not one of ATTENTIONS"""
    if name not in ATTENTIONS:
        raise InputError(f"unknown attention {name!r}; known: {', '.join(ATTENTIONS)}{nearest(name, ATTENTIONS)}")
