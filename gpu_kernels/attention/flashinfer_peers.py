"""FlashInfer's paged attention on our operands: its plan is made untimed, a graph captures its run.

source  docs.flashinfer.ai: flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper, flashinfer.mla
"""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from gpu_kernels.attention.mla_decode import LATENT_SIZE, ROPE_SIZE
from gpu_kernels.proof.problems import Peer, where_installed

WORKSPACE_BYTES = 128 * 2**20  # as its documentation asks
MIN_TENSOR_CORE_GROUP = 4  # heads per key, from which its documentation advises tensor cores


def paged_decode_peers() -> dict[str, Peer]:
    """For one new token per sequence, 16-bit or FP8 pages with a scale per tensor."""
    return where_installed("flashinfer", {"flashinfer BatchDecode": Peer(_plan_decode, _run)})


def mla_decode_peers() -> dict[str, Peer]:
    """For 16-bit pages."""
    return where_installed("flashinfer", {"flashinfer BatchMLA": Peer(_plan_mla, _run)})


def page_lists(block_table: Tensor, seq_lens: Tensor, page_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """(first page of each sequence [B + 1], pages of all one after the other, tokens on each last page [B]) int32."""
    needed = (seq_lens + page_size - 1) // page_size
    indptr = torch.nn.functional.pad(needed.cumsum(0), (1, 0)).int()
    is_needed = torch.arange(block_table.shape[1], device=seq_lens.device) < needed[:, None]
    return indptr, block_table[is_needed], (seq_lens - (needed - 1) * page_size).int()


def _workspace(like: Tensor) -> Tensor:
    return torch.zeros(WORKSPACE_BYTES, dtype=torch.uint8, device=like.device)


def _run(run: Any, given: dict[str, Any]) -> Tensor:
    return run(**given)


def _plan_decode(operands: dict[str, Any]) -> dict[str, Any]:
    query, cache = operands["query"][:, 0], operands["cache"]
    heads, kv_heads = query.shape[1], cache.keys.shape[2]
    wrapper = import_module("flashinfer").BatchDecodeWithPagedKVCacheWrapper(
        _workspace(query), "NHD", use_tensor_cores=heads // kv_heads >= MIN_TENSOR_CORE_GROUP
    )
    wrapper.plan(
        *page_lists(cache.block_table, cache.seq_lens, cache.page_size),
        heads,
        kv_heads,
        query.shape[2],
        cache.page_size,
        q_data_type=query.dtype,
        kv_data_type=cache.keys.dtype,
        sm_scale=operands["softmax_scale"],
    )
    given = {"q": query, "paged_kv_cache": (cache.keys, cache.values)}
    if cache.is_codes:
        given |= {"k_scale": float(cache.key_scale), "v_scale": float(cache.value_scale)}
    return {"run": wrapper.run, "given": given}


def _plan_mla(operands: dict[str, Any]) -> dict[str, Any]:
    query, cache, seq_lens = operands["query"], operands["cache"], operands["seq_lens"]
    batch, num_queries, heads, _ = query.shape
    wrapper = import_module("flashinfer.mla").BatchMLAPagedAttentionWrapper(_workspace(query))
    indptr, pages, _ = page_lists(operands["block_table"], seq_lens, cache.shape[1])
    wrapper.plan(
        qo_indptr=torch.arange(batch + 1, dtype=torch.int32, device=query.device) * num_queries,
        kv_indptr=indptr,
        kv_indices=pages,
        kv_len_arr=seq_lens,
        num_heads=heads,
        head_dim_ckv=LATENT_SIZE,
        head_dim_kpe=ROPE_SIZE,
        page_size=cache.shape[1],
        causal=num_queries > 1,
        sm_scale=operands["softmax_scale"],
        q_data_type=query.dtype,
        kv_data_type=cache.dtype,
    )
    sizes = [LATENT_SIZE, ROPE_SIZE]
    q_nope, q_pe = (part.contiguous() for part in query.flatten(0, 1).split(sizes, dim=-1))
    ckv_cache, kpe_cache = (part.contiguous() for part in cache.split(sizes, dim=-1))
    return {
        "run": wrapper.run,
        "given": {"q_nope": q_nope, "q_pe": q_pe, "ckv_cache": ckv_cache, "kpe_cache": kpe_cache},
    }
