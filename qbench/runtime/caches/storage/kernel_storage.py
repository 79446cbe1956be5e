"""`KernelStorage`: keys and values of one layer in a store of cpu_kernels."""

import importlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from qbench.policies import Observe
from qbench.prefill import BLOCK, BlockLists
from qbench.runtime.attention.block_attention import PartialAttention, concat
from qbench.runtime.attention.observed_weights import query_weights
from qbench.runtime.attention.rope import rotate
from qbench.runtime.caches.step import ChosenPages, Past
from qbench.runtime.caches.storage.kv_storage import Far, KVStorage, held_tokens
from qbench.runtime.caches.storage.share import Seen
from qbench.runtime.kernel_steps import weighs_scores
from quant.extension import has_cpu_kernels
from quant.kv import KVScheme
from quant.models import AttentionRule, ModelConfig


class Run(NamedTuple):
    """Queries start .. end - 1; the last of them sees the first `num_seen` keys.

    is_causal  each query sees one key more than the query before; False: all see the same keys
    """

    start: int
    end: int
    num_seen: int
    is_causal: bool


def share_runs(num_seen: Tensor) -> Iterator[Run]:
    """num_seen  [T] int64: keys that each query sees, of which consecutive ones differ by 0 or 1"""
    seen, start = num_seen.tolist(), 0
    while start < len(seen):
        end = start + 1
        step = seen[end] - seen[start] if end < len(seen) else 0
        while end < len(seen) and seen[end] - seen[end - 1] == step:
            end += 1
        yield Run(start, end, seen[end - 1], is_causal=step == 1)
        start = end


# KV format -> the store's format, and where the scales of float8 come from; None: floats as they come
STORES: dict[str | None, tuple[str, str]] = {
    None: ("f32", "given"),
    "kv-f16": ("f16", "given"),
    "kv-bf16": ("bf16", "given"),
    "kv-fp8": ("e4m3", "per_head"),
    "kv-fp8-tensor": ("e4m3", "per_tensor"),
    "kv-fp8-cal": ("e4m3", "given"),
    "kv-fp8-cal-head": ("e4m3", "given"),
    "kv-fp8-e5m2": ("e5m2", "per_head"),
    "kv-fp8-e5m2-cal": ("e5m2", "given"),
    "kv-int8": ("int8", "given"),
    "kv-int4": ("int4", "given"),
    "kv-kivi-4": ("kivi4", "given"),
    "kv-kivi-2": ("kivi2", "given"),
}


def has_store(config: ModelConfig, scheme: KVScheme | None) -> bool:
    """Whether the kernels hold keys and values of this model in this format, and attend to them by its rules."""
    name = None if scheme is None else scheme.format.name
    if name not in STORES or not weighs_scores(config) or not has_cpu_kernels():
        return False
    return importlib.import_module("cpu_kernels").has_kv_store(STORES[name][0], config.head_dim)


class KernelStorage(KVStorage):
    """The kernels append, attend, weigh keys and move slots.

    scheme        format of keys and values; None: float32
    layer         whose scales the store takes
    num_kv_heads  None: as many as the model has
    num_rings     of sequences whose recent tokens are apart from the pages; 0: pages have all tokens
    exact         whether the bits of a query do not depend on the queries next to it
    """

    one_width = True
    layout = "kernel-blocks-1"  # cpu_kernels/csrc/attention/store/layout.h

    def __init__(
        self,
        config: ModelConfig,
        scheme: KVScheme | None,
        layer: int,
        num_pages: int,
        page_size: int,
        num_kv_heads: int | None = None,
        num_rings: int = 0,
        exact: bool = False,
    ) -> None:
        name, scales = STORES[None if scheme is None else scheme.format.name]
        k_scale, v_scale = (None, None) if scheme is None else (scheme.k_scale, scheme.v_scale)
        given = () if k_scale is None or v_scale is None else (k_scale[layer], v_scale[layer])
        self.num_kv_heads, self.head_dim = num_kv_heads or config.num_kv_heads, config.head_dim
        sizes = (num_pages, held_tokens(page_size), self.num_kv_heads, self.head_dim)
        make_store = importlib.import_module("cpu_kernels").KVStore
        self.store: Any = make_store(name, *sizes, scales, *given, num_rings=num_rings, exact=exact)
        self.num_pages, self.num_rings = num_pages, num_rings
        self.bytes_per_token = self.store.nbytes / (num_pages * self.page_size)

    @property
    def page_size(self) -> int:
        return self.store.page_size

    def resize(self, page_size: int) -> None:
        if held_tokens(page_size) != self.page_size:
            self.store.resize(held_tokens(page_size))

    def add_pages(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self.store.add_pages(num_pages)

    def copy_page(self, source: int, target: int) -> None:
        self.store.copy_page(source, target)

    def save_page(self, page: int) -> np.ndarray:
        saved = np.empty(self.store.page_bytes, dtype=np.uint8)
        self.store.read_page(page, saved)
        return saved

    def load_page(self, page: int, saved: np.ndarray) -> None:
        self.store.write_page(page, saved)

    @property
    def page_bytes(self) -> int:
        return self.store.page_bytes

    def dump_page(self, page: int, out: np.ndarray) -> None:
        self.store.read_page(page, out)

    def fill_page(self, page: int, data: np.ndarray) -> None:
        self.store.write_page(page, data)

    def dump_pages(self, pages: np.ndarray, out: np.ndarray) -> None:
        self.store.read_pages(pages, out)

    def fill_pages(self, pages: np.ndarray, data: np.ndarray) -> None:
        self.store.write_pages(pages, data)

    def append(self, k: Tensor, v: Tensor, past: Past, slots: Tensor | None = None) -> None:
        places = None if slots is None else slots.numpy()
        self.store.append(k.numpy(), v.numpy(), past.block_table, past.ends, past.cu_seqlens, slots=places)

    def rope_append(self, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], past: Past) -> Tensor:
        q, k, whole = self.rotated_in_part(q, k, rope)
        if whole is None:
            self.append(k, v, past)
            return q
        rotated = torch.empty_like(q)
        cos, sin = (angles.numpy() for angles in whole)
        new = (q.numpy(), k.numpy(), v.numpy(), cos, sin)
        self.store.rope_append(*new, past.block_table, past.ends, rotated.numpy(), past.cu_seqlens)
        return rotated

    def rotated_in_part(
        self, q: Tensor, k: Tensor, rope: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor] | None]:
        """Queries and keys, rotated if only a part of each head is, which the kernels do not; rope is then None."""
        if rope is None or rope[0].shape[-1] == q.shape[-1]:
            return q, k, rope
        return rotate(q, *rope), rotate(k, *rope), None

    def attend(
        self, q: Tensor, past: Past, rule: AttentionRule, observe: Observe | None = None, far: Far | None = None
    ) -> tuple[Tensor, Tensor | Iterator[Tensor] | None]:
        batch, num_heads, num_tokens, head_dim = q.shape
        # In memory [B, T, H, D], as the product that follows reads it.
        out = q.new_empty(batch, num_tokens, num_heads, head_dim).transpose(1, 2)
        given = (q.numpy(), past.block_table, past.ends, out.numpy(), rule.scale, rule.window, past.cu_seqlens)
        sinks = {} if far is None else {"sinks": far.num_sinks, "sink_q": far.q.numpy()}
        if observe is None or (observe.each and num_tokens > 1):
            self.store.attend(*given, **sinks)
            return out, None if observe is None else self._each(q, past, rule, observe)
        mass = torch.empty(len(past.ends), self.num_kv_heads, past.num_slots)
        self.store.attend(*given, **sinks, mass=mass.numpy(), mass_queries=min(observe.queries or 0, num_tokens))
        if observe.each:  # of the only query: its weights, averaged over the heads of a group
            return out, iter([mass[:, :, None] * (self.num_kv_heads / num_heads)])
        return out, mass

    def attend_chosen(self, q: Tensor, chosen: ChosenPages, rule: AttentionRule) -> Tensor:
        out = q.new_empty(len(q), 1, *q.shape[1::2]).transpose(1, 2)
        self.store.attend(q.numpy(), chosen.pages, chosen.ends, out.numpy(), rule.scale)
        return out

    def _each(self, q: Tensor, past: Past, rule: AttentionRule, observe: Observe) -> Iterator[Tensor]:
        """The weights of each observed query, in torch: [B, G, t, S] for some queries at a time"""
        keys, _ = self.read(past)
        return query_weights(q if observe.queries is None else q[:, :, -observe.queries :], keys, rule)

    def attend_blocks(self, q: Tensor, past: Past, softmax_scale: float, lists: BlockLists) -> PartialAttention:
        num_heads, num_tokens, head_dim = q.shape
        out = q.new_empty(num_tokens, num_heads, head_dim).transpose(0, 1)  # in memory [T, H, D], as `attend` has it
        lse = q.new_empty(1, num_heads, num_tokens)
        given = (q[None].numpy(), past.block_table, past.ends, out[None].numpy(), softmax_scale)
        blocks = (lists.offsets.numpy(), lists.indices.numpy(), lists.key_block, BLOCK)
        self.store.attend_blocks(*given, *blocks, lse=lse.numpy())
        return PartialAttention(out, lse[0])

    def attend_part(self, q: Tensor, past: Past, rule: AttentionRule, new: Seen) -> PartialAttention:
        if rule.window:  # which the kernels would count in slots
            return super().attend_part(q, past, rule, new)
        num_seen = torch.searchsorted(new.held, new.positions, right=True)
        parts = [self._attend_run(q[:, :, run.start : run.end], past, rule, run) for run in share_runs(num_seen)]
        return concat(parts, 2)

    def _attend_run(self, q: Tensor, past: Past, rule: AttentionRule, run: Run) -> PartialAttention:
        """q  [B, H, T, D] of the run alone"""
        batch, num_heads, num_tokens, head_dim = q.shape
        if not run.num_seen:
            return PartialAttention(torch.zeros_like(q), q.new_full(q.shape[:3], -torch.inf))
        if not run.is_causal:  # queries that see the same keys are more heads of their group
            q = q.reshape(batch, num_heads * num_tokens, 1, head_dim)
        out = q.new_empty(batch, q.shape[2], q.shape[1], head_dim).transpose(1, 2)
        lse = q.new_empty(q.shape[:3])
        ends = np.full(batch, run.num_seen)
        self.store.attend(q.numpy(), past.block_table, ends, out.numpy(), rule.scale, lse=lse.numpy())
        shape = (batch, num_heads, num_tokens)
        return PartialAttention(out.reshape(*shape, head_dim), lse.view(shape))

    def compact(self, past: Past, keep: Tensor) -> None:
        self.store.compact(past.block_table, past.ends, keep.contiguous().numpy())

    def read(self, past: Past) -> tuple[Tensor, Tensor]:
        shape = (len(past.ends), self.num_kv_heads, past.num_slots, self.head_dim)
        keys, values = torch.empty(2, *shape).unbind()
        self.store.read(past.block_table, past.ends, keys.numpy(), values.numpy())
        return keys, values
