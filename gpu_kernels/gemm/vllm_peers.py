"""vLLM's products on operands of our sizes: CUTLASS for scaled codes, Marlin for 4-bit weights.

source  vllm/_custom_ops.py: cutlass_scaled_mm; marlin_gemm, before called gptq_marlin_gemm
"""

import inspect
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.proof.problems import Peer, where_installed

OPS = "vllm._custom_ops"
MARLIN_GROUP = 128
MARLIN_TILE = 16  # features that its packing keeps together
LOCKS_PER_SM = 16  # its programs' locks: more than any version asks for


def scaled_mm_peers() -> dict[str, Peer]:
    """For int8 or FP8 codes with a scale per token and per channel."""
    return where_installed("vllm", {"vllm cutlass_scaled_mm": Peer(_scaled_operands, _scaled_mm)})


def marlin_peers(N: int, K: int) -> dict[str, Peer]:
    """For 4-bit weights in groups of 128."""
    return where_installed("vllm", {"vllm Marlin g128": Peer(partial(_marlin_operands, N, K), _run)})


def _scaled_operands(operands: dict[str, Any]) -> dict[str, Any]:
    return {
        "a": operands["x_q"],
        "b": operands["weight_q"].T,
        "scale_a": operands["x_scale"][:, None],
        "scale_b": operands["weight_scale"][None, :],
        "out_dtype": operands["out_dtype"],
    }


def _scaled_mm(**given: Any) -> Tensor:
    return import_module(OPS).cutlass_scaled_mm(**given)


def _run(run: Any, given: dict[str, Any]) -> Tensor:
    return run(**given)


def _marlin_operands(N: int, K: int, operands: dict[str, Any]) -> dict[str, Any]:
    """Random codes, eight per word: any words are weights. Unused arguments of a version are None."""
    ops, scalar_types = import_module(OPS), import_module("vllm.scalar_type").scalar_types
    gemm = getattr(ops, "marlin_gemm", None) or ops.gptq_marlin_gemm
    x = operands["x"]
    shape, like = (K // MARLIN_TILE, N * MARLIN_TILE // 8), {"dtype": torch.int32, "device": x.device}
    locks = LOCKS_PER_SM * torch.cuda.get_device_properties(x.device).multi_processor_count
    known = {
        "a": x,
        "b_q_weight": torch.randint(-(2**31), 2**31, shape, **like),
        "b_scales": torch.rand(K // MARLIN_GROUP, N, dtype=x.dtype, device=x.device),
        "workspace": torch.zeros(locks, **like),
        "b_q_type": scalar_types.uint4b8,
        "size_m": len(x),
        "size_n": N,
        "size_k": K,
        "use_fp32_reduce": True,
    }
    takes = inspect.signature(gemm).parameters.values()
    needed = {each.name: None for each in takes if each.default is inspect.Parameter.empty}
    return {"run": gemm, "given": needed | known}
