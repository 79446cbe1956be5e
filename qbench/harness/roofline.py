"""The roofline: the least time that this machine could need, from bytes that must move and operations that must run."""

from dataclasses import dataclass
from typing import Any

from qbench.harness.speed_case import SpeedCase
from quant.models import EMBEDDING, HEAD, split_name
from quant.source import TensorInfo


@dataclass(frozen=True, slots=True)
class Shape:
    """What the formulas need to know of a decoder."""

    num_layers: int
    num_heads: int
    head_dim: int
    kv_bytes_per_token: int  # over all layers
    expert_share: float = 1.0  # of a layer's routed experts that one token reads


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured on this machine, with the threads of the run."""

    bytes_per_s: float
    ops_per_s: dict[str, float]  # by arithmetic: fp32, bf16, int8


def arithmetic_of(impl: str) -> str:
    """The arithmetic that an implementation multiplies a prefill in, as its name has it."""
    if impl.startswith(("cpu-bf16[", "torch-bf16")) or "bf16 products" in impl:
        return "bf16"
    return "int8" if impl.startswith("cpu-") and not impl.startswith(("cpu-f16[", "cpu-f32[")) else "fp32"


def read_share(name: str, shape: Shape) -> float:
    """How much of this tensor a token reads, on average over a layer's experts: all of it, but for routed experts."""
    _, _, expert = split_name(name)
    return 1.0 if expert is None else shape.expert_share


def decode_bytes(tensors: dict[str, TensorInfo], shape: Shape, case: SpeedCase) -> dict[str, float]:
    """Bytes that one decode step must move, on average over the steps of a repetition, term by term.

    Weights count as stored: an implementation that unpacks them into something larger moves more, so its share drops.
    Of routed experts those count that a token chooses.
    """
    linears = sum(
        info.size_bytes * read_share(name, shape)
        for name, info in tensors.items()
        if name != EMBEDDING and len(info.shape) == 2
    )
    norms = sum(info.size_bytes for info in tensors.values() if len(info.shape) == 1)
    embedding = tensors[EMBEDDING]
    mean_length = case.depth + (case.tg - 1) / 2  # tokens in the cache before a step: depth .. depth + tg - 1
    return {
        "linears": linears if HEAD in tensors else linears + embedding.size_bytes,  # a tied head reads the table
        "embedding_row": embedding.size_bytes / embedding.shape[0],
        "norms_and_biases": norms,
        "kv_read": mean_length * shape.kv_bytes_per_token,
        "kv_written": shape.kv_bytes_per_token,
    }


def prefill_ops(tensors: dict[str, TensorInfo], shape: Shape, case: SpeedCase) -> dict[str, dict[str, float]]:
    """Operations (a multiply and an add are two) of one prefill: {"linears": {name: ops}, "attention": {...}}.

    linear     2 N K a token; an expert's for the tokens that choose it; the head only for the last token
    attention  each query sees depth + its own index + 1 keys: 2 D for q k^T and 2 D for the sum over v, a head
    """
    linears = {
        name.removesuffix(".weight"): 2.0 * info.shape[0] * info.shape[1] * case.pp * read_share(name, shape)
        for name, info in tensors.items()
        if name not in (EMBEDDING, HEAD) and len(info.shape) == 2
    }
    head = tensors.get(HEAD, tensors[EMBEDDING])
    linears[HEAD.removesuffix(".weight")] = 2.0 * head.shape[0] * head.shape[1]
    pairs = case.pp * case.depth + case.pp * (case.pp + 1) / 2  # (query, key) pairs that the causal mask leaves
    per_product = 2.0 * shape.num_layers * shape.num_heads * shape.head_dim * pairs
    return {"linears": linears, "attention": {"q_k": per_product, "p_v": per_product}}


def roofline(
    tensors: dict[str, TensorInfo],
    shape: Shape,
    impls: dict[str, str],
    peaks: Peaks,
    case: SpeedCase,
    speed: dict[str, Any],
) -> dict[str, Any]:
    """Share of the roofline reached by pp and tg (1 is the bound), with the terms that it comes from.

    A share above 1 in tg means that the weights stay in a cache faster than the memory measured.
    """
    moved = decode_bytes(tensors, shape, case)
    ops = prefill_ops(tensors, shape, case)
    by_arithmetic = {"fp32": sum(ops["attention"].values())}
    for name, count in ops["linears"].items():
        arithmetic = arithmetic_of(impls[name])
        by_arithmetic[arithmetic] = by_arithmetic.get(arithmetic, 0.0) + count
    tg_least_s = sum(moved.values()) / peaks.bytes_per_s
    pp_ops_s = sum(count / peaks.ops_per_s[arithmetic] for arithmetic, count in by_arithmetic.items())
    weights_s = (moved["linears"] + moved["norms_and_biases"]) / peaks.bytes_per_s
    pp_least_s = max(pp_ops_s, weights_s)  # a short prompt is bound by reading the weights once
    return {
        "pp": None if speed["ttft_ms"] is None else 1e3 * pp_least_s / speed["ttft_ms"],
        "tg": None if speed["tpot_ms"] is None else 1e3 * tg_least_s / speed["tpot_ms"],
        "tg_bytes": moved,
        "pp_ops": by_arithmetic,
        "bandwidth_bytes_per_s": peaks.bytes_per_s,
        "peak_ops_per_s": {name: peaks.ops_per_s[name] for name in by_arithmetic},
    }
