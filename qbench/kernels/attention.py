"""Attention over stored keys and values in every format, in decode and prefill, and over latents that heads share."""

from collections.abc import Iterator

import numpy as np

import cpu_kernels
from cpu_kernels.attention import (
    attend_latents,
    attention_ref,
    bf16_queries_ref,
    latent_attention_ref,
    round_queries_ref,
)
from cpu_kernels.attention_bound import attention_bound
from qbench.kernels.case import Kernel, Problem
from qbench.kernels.deviation import Deviation, deviation

# format -> where the scales of float8 come from
FORMATS = {"f32": "given", "f16": "given", "bf16": "given", "e4m3": "per_head", "e5m2": "per_head"}
INTEGER_FORMATS = {"int8": "given", "int4": "given"}
FLOAT8 = ("e4m3", "e5m2")
# What a kernel makes of q before it multiplies
ROUND_QUERIES = {"fp32": lambda q, factor: q, "int16": round_queries_ref, "bf16": bf16_queries_ref}
NOT_BF16 = frozenset({"scalar", "avx2", "avx512", "avx512_vnni", "amx"})  # read float8 as floats
SHAPES = ((3, 1, 1, 1), (6, 2, 1, 1100), (6, 2, 67, 131))  # query heads, kv heads, queries, tokens
HEAD_DIM = 64
LATENT_SIZE, ROPE_SIZE = 512, 64
LATENT_SHAPES = ((3, 17), (16, 300))  # heads, tokens
LOG2_E = np.float32(1.44269504)
SEED = 31


def attention() -> list[Kernel]:
    return [Kernel("attention", problems)]


def problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED)
    for num_heads, num_kv_heads, queries, tokens in SHAPES:
        q = rng.standard_normal((1, num_heads, queries, HEAD_DIM)).astype(np.float32)
        k, v = rng.standard_normal((2, 1, num_kv_heads, tokens, HEAD_DIM)).astype(np.float32)
        for name, scales in (FORMATS | INTEGER_FORMATS).items():
            if name in FLOAT8:
                yield attend_problem(name, scales, q, k, v, "bf16", NOT_BF16)
                yield attend_problem(name, scales, q, k, v, "fp32", frozenset({"avx512_bf16"}))
            else:
                yield attend_problem(name, scales, q, k, v, "int16" if name in INTEGER_FORMATS else "fp32")
    for num_heads, tokens in LATENT_SHAPES:
        q = rng.standard_normal((1, num_heads, LATENT_SIZE + ROPE_SIZE)).astype(np.float32)
        latents = rng.standard_normal((tokens, LATENT_SIZE + ROPE_SIZE)).astype(np.float32)
        for name in ("f32", "f16", "bf16", "fp8"):
            yield latent_problem(name, q, latents)


def latent_problem(name: str, q: np.ndarray, latents: np.ndarray) -> Problem:
    """q [1, H, 576]; latents [S, 576] float32, kept in a format and read back by torch and quant's codec"""
    kept, rows = kept_latents(name, latents)
    tokens, softmax_scale = len(latents), (LATENT_SIZE + ROPE_SIZE) ** -0.5
    table, lengths = np.zeros((1, 1), np.int32), np.array([tokens])

    def run(isa: str) -> tuple[np.ndarray, str]:
        out = np.full((1, q.shape[1], LATENT_SIZE), np.nan, np.float32)
        return out, attend_latents(q, name, kept[None], table, lengths, out, softmax_scale, isa=isa)

    def check(out: np.ndarray) -> Deviation:
        expected = latent_attention_ref(q, rows[None], softmax_scale, LATENT_SIZE)
        bound = attention_bound(q[:, :, None], rows[None, None], rows[None, None, :, :LATENT_SIZE], softmax_scale)
        return deviation(out, expected, bound[:, :, 0])

    return Problem(f"{name} latents, {q.shape[1]} heads, {tokens} tokens", run, check)


def kept_latents(name: str, latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As they are kept, and as they are read: [S, 576] float32"""
    import torch

    from quant.kv.mla_latent import decode_latent, encode_latent

    x = torch.from_numpy(latents)
    if name == "fp8":
        data = encode_latent(x[:, :LATENT_SIZE], x[:, LATENT_SIZE:])
        return data.numpy(), torch.cat(decode_latent(data), -1).numpy()
    kept = x.to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name])
    codes = kept.view(torch.uint16) if name == "bf16" else kept
    return codes.numpy(), kept.float().numpy()


def attend_problem(
    name: str,
    scales: str,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    arithmetic: str,
    not_for: frozenset[str] = frozenset(),
) -> Problem:
    """arithmetic: as cpu_kernels.attention.multiplies_in names it"""
    num_kv_heads, tokens = k.shape[1:3]
    pages = -(-tokens // 32)
    table, lengths = np.arange(pages, dtype=np.int32)[None, ::-1].copy(), np.array([tokens])
    softmax_scale = HEAD_DIM**-0.5

    def stored(isa: str | None) -> cpu_kernels.KVStore:
        store = cpu_kernels.KVStore(name, pages, 32, num_kv_heads, HEAD_DIM, scales)
        store.append(k, v, table, lengths, isa=isa)
        return store

    def run(isa: str) -> tuple[np.ndarray, str]:
        store, out = stored(isa), np.full_like(q, np.nan)
        store.attend(q, table, lengths, out, softmax_scale, isa=isa)
        return out, store.last_isa

    def check(out: np.ndarray) -> Deviation:
        kept_k, kept_v = np.empty_like(k), np.empty_like(v)
        stored("scalar").read(table, lengths, kept_k, kept_v)
        given = ROUND_QUERIES[arithmetic](q, np.float32(softmax_scale) * LOG2_E), kept_k, kept_v, softmax_scale
        return deviation(out, attention_ref(*given), attention_bound(*given, arithmetic=arithmetic))

    heads = f"{q.shape[1]} heads on {num_kv_heads}"
    return Problem(f"{name} {heads}, {q.shape[2]} queries of {tokens} tokens", run, check, not_for)
