"""Checks, then times, every kernel on this machine's GPU: `python -m gpu_kernels.measure [--out PATH]`.

Exit code 0: measured, records appended. 1: a kernel is wrong, and nothing was timed. 2: no CUDA GPU, or none that
the table of tile shapes knows, or no commit to name.
Every tile shape of the table is timed, so that the records say which one its row should put first.
"""

import argparse
import sys
from pathlib import Path

import torch

from gpu_kernels import record, timing
from gpu_kernels.check import wrong_results
from gpu_kernels.contenders import Contender, contenders, operands, quantizer
from gpu_kernels.launch import architecture
from gpu_kernels.w8a8_gemm_configs import candidates
from gpu_kernels.w8a8_gemm_triton import w8a8_gemm_kernel

DEVICE = "cuda"
TOKENS = (1, 16, 64, 512, 4096)
WEIGHTS = ((4096, 4096), (14336, 4096), (4096, 14336), (8192, 8192))  # (N, K): Llama 8B's projections, and a square
RAGGED = [(M, 1031, 4099) for M in (1, 63, 131)]  # M, N, K of the check alone
QUANTIZER_MIN_TOKENS = 512  # fewer rows are a few KB, which come out of the cache wherever they are used


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
