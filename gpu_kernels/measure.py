"""Checks, then times, every kernel on this machine's GPU: `python -m gpu_kernels.measure [--out PATH]`.

Exit code 0: measured, records appended. 1: a kernel is wrong, and nothing was timed. 2: no CUDA GPU, or none that
the table of tile shapes knows, or no commit to name.
Every tile shape of the table is timed, so that the records say which one its row should put first.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from gpu_kernels import record, timing
from gpu_kernels.launch import architecture
from gpu_kernels.quantize_per_token import quantize_per_token_ref
from gpu_kernels.quantize_per_token_triton import quantize_per_token_triton
from gpu_kernels.w8a8_gemm import OUT_DTYPES, w8a8_gemm_ref
from gpu_kernels.w8a8_gemm_configs import Config, candidates
from gpu_kernels.w8a8_gemm_triton import w8a8_gemm_kernel, w8a8_gemm_triton

DEVICE = "cuda"
TOKENS = (1, 16, 64, 512, 4096)
WEIGHTS = ((4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192))  # (N, K): Llama 8B's projections, and a square
RAGGED = [(M, 1031, 4099) for M in (1, 63, 131)]  # M, N, K of the check alone
QUANTIZER_MIN_TOKENS = 512  # fewer rows are a few KB, which come out of the cache wherever they are used
INT_MM_MIN_TOKENS = 17  # torch._int_mm refuses fewer


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to do a job: what a call on an operand set does, and what it must at least compute and move."""

    op: str
    impl: str
    call: Callable[[dict[str, Tensor]], object]
    ops: int
    num_bytes: int


def operands(M: int, N: int, K: int, device: str) -> dict[str, Tensor]:
    """Random operands and poisoned results of every contender, for one call."""

    def codes(rows):
        return torch.randint(-128, 128, (rows, K), dtype=torch.int8, device=device)

    def scale(rows):
        return (torch.rand(rows, device=device) + 0.5) / 128

    return {
        "x_q": codes(M),
        "x_scale": scale(M),
        "weight_q": codes(N),
        "weight_scale": scale(N),
        "y": torch.full((M, N), torch.nan, dtype=torch.bfloat16, device=device),
        "acc": torch.full((M, N), -1, dtype=torch.int32, device=device),
        "x": torch.randn(M, K, dtype=torch.bfloat16, device=device),
        "weight": torch.randn(N, K, dtype=torch.bfloat16, device=device),
        "codes": torch.full((M, K), -128, dtype=torch.int8, device=device),
        "codes_scale": torch.full((M,), torch.nan, device=device),
    }


def contenders(M: int, N: int, K: int, arch: int) -> list[Contender]:
    """Every tile shape of the W8A8 product, torch's int8 product (bare: no scales, int32 out) and bf16 product."""
    ops = 2 * M * N * K
    w8a8_bytes = M * K + N * K + 4 * (M + N) + 2 * M * N  # codes, scales, y
    int_mm_bytes = M * K + N * K + 4 * M * N  # codes, acc
    bf16_bytes = 2 * (M * K + N * K + M * N)

    found = [
        Contender("w8a8_gemm", f"triton {config}", partial(_w8a8, config=config), ops, w8a8_bytes)
        for config in candidates(arch, M)
    ]
    if M >= INT_MM_MIN_TOKENS:
        found.append(Contender("int8_gemm", "torch._int_mm", _int_mm, ops, int_mm_bytes))
    return [*found, Contender("bf16_gemm", "torch.matmul", _matmul, ops, bf16_bytes)]


def quantizer(M: int, K: int) -> Contender:
    """Counts 4 operations a feature (abs, max, divide, round), and bf16 read once though the kernel reads it twice."""
    return Contender("quantize_per_token", "triton", _quantize, 4 * M * K, 2 * M * K + M * K + 4 * M)


def _w8a8(s: dict[str, Tensor], config: Config) -> None:
    w8a8_gemm_triton(s["x_q"], s["x_scale"], s["weight_q"], s["weight_scale"], None, s["y"], config)


def _int_mm(s: dict[str, Tensor]) -> None:
    torch._int_mm(s["x_q"], s["weight_q"].T, out=s["acc"])


def _matmul(s: dict[str, Tensor]) -> None:
    torch.matmul(s["x"], s["weight"].T, out=s["y"])


def _quantize(s: dict[str, Tensor]) -> None:
    quantize_per_token_triton(s["x"], s["codes"], s["codes_scale"])


def wrong_results(shapes: list[tuple[int, int, int]], device: str) -> list[str]:
    """One line for each kernel, shape, type and tile shape whose result is not its oracle's; none if all are right."""
    wrong = []
    for M, N, K in shapes:
        s = operands(M, N, K, device)
        expected = w8a8_gemm_ref(s["x_q"], s["x_scale"], s["weight_q"], s["weight_scale"])
        for config in candidates(architecture("w8a8_gemm", s["x_q"], w8a8_gemm_kernel), M):
            for dtype in OUT_DTYPES:
                s["y"] = torch.full((M, N), torch.nan, dtype=dtype, device=device)
                _w8a8(s, config)
                if not agrees(s["y"], expected):
                    wrong.append(f"w8a8_gemm M={M} N={N} K={K} {dtype} {config}")
        _quantize(s)
        codes, scale = quantize_per_token_ref(s["x"])
        if not (torch.equal(s["codes"], codes) and torch.equal(s["codes_scale"], scale)):
            wrong.append(f"quantize_per_token M={M} K={K}")
    return wrong


def agrees(y: Tensor, expected: Tensor) -> bool:
    """y is expected, within its type's rounding (of subnormals too) and three roundings in float32."""
    about = torch.finfo(y.dtype)
    bound = (about.eps / 2 + 3 * 2**-24) * expected.abs() + about.smallest_normal * about.eps
    return bool(((y.double() - expected).abs() <= bound).all())


def measure(M: int, N: int, K: int, ways: list[Contender], ceilings: dict[str, float], l2_bytes: int) -> list[dict]:
    """One record for each way: raw samples, median, rates, and shares of the ceilings measured in this run."""
    num_sets = timing.num_sets(min(way.num_bytes for way in ways), l2_bytes)
    sets = [operands(M, N, K, DEVICE) for _ in range(num_sets)]
    calls = {way.impl: lambda index, way=way: way.call(sets[index]) for way in ways}
    samples = timing.time_interleaved(calls, num_sets)
    return [_result(M, N, K, way, samples[way.impl], ceilings) for way in ways]


def _result(M: int, N: int, K: int, way: Contender, samples: list[float], ceilings: dict[str, float]) -> dict:
    us = timing.median(samples)
    ops_s, bytes_s = way.ops / us * 1e6, way.num_bytes / us * 1e6
    peak = ceilings["bf16_ops_s" if way.op == "bf16_gemm" else "int8_ops_s"]
    return {
        "op": way.op,
        "impl": way.impl,
        "M": M,
        "N": N,
        "K": K,
        "us": us,
        "samples_us": samples,
        "tops": ops_s / 1e12,
        "gb_s": bytes_s / 1e9,
        "share_of_ops": ops_s / peak,
        "share_of_bandwidth": bytes_s / ceilings["copy_bytes_s"],
    }


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m gpu_kernels.measure", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/gpu/w8a8_gemm.jsonl"), help="JSON lines, appended")
    parser.add_argument("--commit", help="the commit of a tree that was copied without its history")
    arguments = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("measure: got no CUDA GPU, expected one; run it where torch.cuda.is_available()", file=sys.stderr)
        return 2
    try:
        about = record.provenance(arguments.commit)
        arch = architecture("w8a8_gemm", torch.empty(0, device=DEVICE), w8a8_gemm_kernel)
        candidates(arch, 1)
    except RuntimeError as error:
        print(f"measure: {error}", file=sys.stderr)
        return 2
    shapes = [(M, N, K) for N, K in WEIGHTS for M in TOKENS]
    if wrong := wrong_results(RAGGED + shapes, DEVICE):
        print("wrong, so nothing was timed:", *wrong, sep="\n  ", file=sys.stderr)
        return 1
    ceilings = timing.measure_ceilings(DEVICE)
    print("ceilings: " + ", ".join(f"{name} {value:.4g}" for name, value in ceilings.items()))
    for M, N, K in shapes:
        results = measure(M, N, K, contenders(M, N, K, arch), ceilings, about["l2_bytes"])
        if M >= QUANTIZER_MIN_TOKENS:
            results += measure(M, 1, K, [quantizer(M, K)], ceilings, about["l2_bytes"])
        record.append(arguments.out, [result | {"ceilings": ceilings} | about for result in results])
        print(*map(line, results), sep="\n", flush=True)
    return 0


def line(result: dict) -> str:
    shape = f"M={result['M']} N={result['N']} K={result['K']}"
    rates = f"{result['tops']:8.1f} TOPS ({result['share_of_ops']:4.0%}) {result['gb_s']:8.0f} GB/s"
    return f"{shape:24} {result['impl']:30} {result['us']:9.2f} us {rates} ({result['share_of_bandwidth']:4.0%})"


if __name__ == "__main__":
    sys.exit(main())
