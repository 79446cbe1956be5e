"""The machine peaks of a GPU, measured in the run whose kernels are held against them."""

import torch

from gpu_kernels.proof.timing import median, time_interleaved
from gpu_kernels.proof.torch_products import int_mm, scaled_mm

BYTES = 2**30
PRODUCT_SIZE = 8192
# Name in Problem.bound -> the peak that it is a share of.
PEAK_OF = {"bandwidth": "bytes_s", "int8": "int8_ops_s", "bf16": "bf16_ops_s", "fp8": "fp8_ops_s"}


def measure_machine_peaks(device: str) -> dict[str, float]:
    """Rates of this GPU on random data: bytes and operations per second.

    copy_bytes_s  read plus written; read_bytes_s  a sum of float32; bytes_s  the larger of the two
    int8_ops_s, bf16_ops_s, fp8_ops_s  products of 8192**3; one that this GPU or torch does not have is left out
    """
    operations = 2 * PRODUCT_SIZE**3
    amounts = {
        "copy_bytes_s": 2 * BYTES,
        "read_bytes_s": BYTES,
        "int8_ops_s": operations,
        "bf16_ops_s": operations,
        "fp8_ops_s": operations,
    }
    samples, _ = time_interleaved(_work(device), sets=1)
    machine_peaks = {name: amounts[name] / median(taken) * 1e6 for name, taken in samples.items()}
    return machine_peaks | {"bytes_s": max(machine_peaks["copy_bytes_s"], machine_peaks["read_bytes_s"])}


def _work(device: str) -> dict:
    source = torch.randint(-128, 128, (BYTES,), dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    words = torch.rand(BYTES // 4, device=device)
    a, b = torch.randint(-128, 128, (2, PRODUCT_SIZE, PRODUCT_SIZE), dtype=torch.int8, device=device)
    a_bf16, b_bf16 = torch.randn(2, PRODUCT_SIZE, PRODUCT_SIZE, dtype=torch.bfloat16, device=device)
    one = torch.ones((), device=device)

    def fp8(_):
        return scaled_mm(a_fp8, b_fp8.T, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    a_fp8, b_fp8 = a_bf16.to(torch.float8_e4m3fn), b_bf16.to(torch.float8_e4m3fn)
    return {
        "copy_bytes_s": lambda _: target.copy_(source),
        "read_bytes_s": lambda _: words.sum(),
        "int8_ops_s": lambda _: int_mm(a, b.T),
        "bf16_ops_s": lambda _: a_bf16 @ b_bf16.T,
        "fp8_ops_s": fp8,
    }
