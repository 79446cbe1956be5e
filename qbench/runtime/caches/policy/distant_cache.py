"""`DistantCache`: queries meet distant blocks at one distance, and read those that a policy chooses."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from qbench.policies.infllm import InfLLM
from qbench.policies.retrieval import BlockState, ChoiceSizes
from qbench.runtime.attention.rope import rotate
from qbench.runtime.attention.rotations import Rotations
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.places.places import Places
from qbench.runtime.caches.policy.retrieval_cache import RetrievalCache
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.step_reads import StepReads, pages_of_blocks, received_by_pages
from qbench.runtime.caches.storage.kv_storage import Far
from qbench.runtime.caches.view.kernel_view import KernelView, LayerView, SinkAngles
from qbench.runtime.caches.view.view import QKV
from quant.models import ModelConfig
from quant.present import present

CHUNK_TOKENS = 512  # that share a choice at most, as in the authors' code


class DistantCache(RetrievalCache):
    """Keys of distant tokens lose their rotation in their pages, so that one rotation of a query meets all of them.

    A forward pass moves blocks after it has run. Until the first block is distant, all tokens are at their places in
    the text, and a forward pass is that of the full cache, bit by bit.

    mass     of each layer and sequence [G, n] float32: attention that its local tokens have received
    """

    policy: InfLLM

    def __init__(self, config: ModelConfig, places: Places[Any], policy: InfLLM) -> None:
        super().__init__(config, places, policy)
        self.max_chunk_tokens = CHUNK_TOKENS
        self.mass = [[torch.empty(config.num_kv_heads, 0) for _ in range(self.batch)] for _ in self.memories]
        self._rotations, self._scale = Rotations(config), config.rope.rotation_scale
        self._far = present(self._rotations(policy.local - 1, policy.local)[0])  # cos, sin [1, R]
        self._mark: _Mark | None = None
        size = self.places.page_size
        self._init_pages, self._block_pages = policy.init // size, policy.block // size
        self._recent: np.ndarray | None = (
            None  # mass of the only sequence in all layers [L, G, n], if it is of one step
        )

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + sum(mass.nbytes for its in self.mass for mass in its)

    # ---- forward passes in which no block is distant

    def has_kernel_view(self, num_tokens: int) -> bool:
        # If blocks can be on a disk, there is room for the prompt of one layer at a time.
        return super().has_kernel_view(num_tokens) and (num_tokens == 1 or self.places.tally is None)

    def kernel_view(self, num_tokens: int) -> KernelView:
        if not self._reads_all(num_tokens):
            return self._one_step_view()
        ends = self._new_lens(num_tokens)
        mass = torch.empty(len(self.memories), self.batch, self.mass[0][0].shape[0], int(ends.max()))

        def settle() -> None:
            for layer in range(len(self.memories)):
                self._settle_all(layer, ends, mass[layer])

        return replace(super().kernel_view(num_tokens), mass=list(mass.numpy()), settle=settle)

    def _sizes(self) -> list[ChoiceSizes | None]:
        """The same in all layers"""
        sizes = self.policy.sizes(0, self.seq_len + 1, self.indices[0][0].num_blocks, self.places.page_size)
        return [sizes] * len(self.memories)

    def _one_step_view(self) -> KernelView:
        """The view of a decode step in which the only sequence chooses."""
        end, num_layers, of_layers = self.seq_len + 1, len(self.memories), self._sizes()
        sizes = present(of_layers[0])
        read = sizes.num_read(end)
        mass = np.empty((num_layers, 1, self.mass[0][0].shape[0], read), dtype=np.float32)
        chosen = np.empty((num_layers, 1, sizes.count), dtype=np.int64)
        near = present(self._rotations(end - 1, end)[0])
        angles = [(cos.numpy(), sin.numpy()) for cos, sin in (near, self._far)]
        in_tiers, share = self.places.tally is not None, self.policy.smooth
        smoothing = [its[0].smoothing(share) for its in self.indices] if share else None

        def bring(layer: int, best: np.ndarray) -> None:
            self.places.bring(layer, self._distant_pages(best[0]))

        def settle() -> None:
            self._num_read, self._num_queries = self._num_read + num_layers * read, self._num_queries + num_layers
            if self._recent is None or self.policy.num_distant(end) > self.indices[0][0].num_blocks:
                self._settle(range(num_layers), 0, end, torch.from_numpy(mass[:, 0]))
                self._recent = np.stack([its[0].numpy() for its in self.mass])
            else:  # all layers at once
                recent = mass[:, 0, :, sizes.num_far :].copy()
                recent[..., : self._recent.shape[2]] += self._recent
                self._recent = recent
            self.mass = [[torch.from_numpy(its)] for its in self._recent]
            if in_tiers:
                self.places.follow(StepReads(sizes, chosen[:, 0], mass[:, 0], smoothing))

        return replace(
            KVCache.kernel_view(self, 1),
            choices=self._choices(of_layers),
            on_choice=bring if in_tiers else None,
            chosen=list(chosen) if in_tiers else None,
            tier=self.places.begin_step(),
            smoothing=smoothing,
            mass=list(mass),
            sinks=SinkAngles(sizes.num_far, *angles),
            settle=settle,
        )

    def _distant_pages(self, blocks: np.ndarray) -> np.ndarray:
        """Pages of a sequence that hold distant blocks [n]"""
        return pages_of_blocks(blocks, self._init_pages, self._block_pages)

    def layer_view(self, layer: int, num_tokens: int) -> LayerView:
        if self.rules[layer].window:
            return super().layer_view(layer, num_tokens)
        ends = self._new_lens(num_tokens)
        mass = torch.empty(self.batch, self.mass[layer][0].shape[0], int(ends.max()))
        settle = partial(self._settle_all, layer, ends, mass)
        return replace(super().layer_view(layer, num_tokens), mass=mass.numpy(), settle=settle)

    def _settle_all(self, layer: int, ends: np.ndarray, mass: Tensor) -> None:
        self._count(layer, ends, None)
        if self.rules[layer].window:
            return
        for b, end in enumerate(ends.tolist()):
            self._settle([layer], b, end, mass[b : b + 1, :, :end])

    # ---- forward passes in which queries choose

    def _attend(self, layer: int, new: QKV) -> Tensor:
        if new.rope is None:
            raise NotImplementedError("keys that are rotated already; expected rope_attend")
        storage, past = self.memories[layer], self._past(layer, new.k.shape[2])
        near = new.append(storage, past)
        if self.rules[layer].window:
            self._count(layer, past.ends, None)
            return storage.attend(near, past, self.rules[layer])[0]
        far = rotate(new.q, *self._far)
        both = zip(past.sequences(near), past.sequences(far), strict=True)
        outs = [self._of_sequence(layer, b, one, near, far) for b, ((one, near), (_, far)) in enumerate(both)]
        return torch.cat(outs, 0 if past.cu_seqlens is None else 2)

    def _of_sequence(self, layer: int, b: int, past: Past, near: Tensor, far: Tensor) -> Tensor:
        """Attention of a sequence's queries [1, H, T, D]; their keys and values are stored."""
        storage, rule, policy = self.memories[layer], self.rules[layer], self.policy
        index, end = self.indices[layer][b], past.num_slots
        if not index.num_blocks:
            out, mass = storage.attend(near, past, rule, policy.observes)
            self._count(layer, past.ends, None)
        else:
            out, mass = self._choose_and_read(layer, b, past, near, far)
        assert isinstance(mass, Tensor)
        self._settle([layer], b, end, mass)
        return out

    def _choose_and_read(self, layer: int, b: int, past: Past, near: Tensor, far: Tensor) -> tuple[Tensor, Tensor]:
        """Attention of queries [1, H, T, D], and the weights that each local token received: [1, G, n]"""
        storage, rule, policy, index = self.memories[layer], self.rules[layer], self.policy, self.indices[layer][b]
        first_local, first = policy.first_local(index.num_blocks), past.num_slots - near.shape[2]
        mass, outs = torch.zeros(1, self.mass[layer][b].shape[0], past.num_slots - first_local), []
        for start in range(0, near.shape[2], policy.queries):
            some = slice(start, start + policy.queries)
            chosen = present(policy.select(BlockState(layer, first + start, index), far[0, :, some]))[0, 0]
            end = min(first + some.stop, past.num_slots)
            pages = self._distant_pages(chosen.numpy())
            self.places.bring(layer, pages)
            seen, num_far = self._seen(replace(past, ends=np.array([end])), index.num_blocks, pages)
            its_far = Far(num_far, far[:, :, some])
            out, received = storage.attend(near[:, :, some], seen, rule, policy.observes, its_far)
            assert isinstance(received, Tensor)
            mass[:, :, : end - first_local] += received[:, :, num_far:]
            if self.places.tally is not None:
                which = (self._init_pages, len(pages), self.places.page_size)
                self.places.credit(layer, pages, received_by_pages(received[0].numpy(), *which))
            outs.append(out)
            self._count(layer, seen.ends, None)
        return torch.cat(outs, 2), mass

    def _seen(self, past: Past, num_distant: int, chosen: np.ndarray) -> tuple[Past, int]:
        """Pages that the queries read, those of chosen blocks among them, and how many of their slots are distant."""
        size, policy = self.places.page_size, self.policy
        first, used = policy.first_local(num_distant), -(-past.num_slots // size)
        which = np.concatenate((np.arange(policy.init // size), chosen, np.arange(first // size, used)))
        num_far = policy.init + len(chosen) * size
        ends = np.array([num_far + past.num_slots - first])
        return Past(np.ascontiguousarray(past.block_table[:, which]), ends), num_far

    # ---- after attention

    def _settle(self, layers: Sequence[int], b: int, end: int, mass: Tensor) -> None:
        """Add the attention that local tokens received, the last of mass [L, G, S], and move blocks away from them.

        layers   with as many distant blocks
        end      tokens of the sequence
        """
        indices, policy = [self.indices[layer][b] for layer in layers], self.policy
        before, after = indices[0].num_blocks, policy.num_distant(end)
        first = policy.first_local(before)
        total = mass[..., mass.shape[2] - (end - first) :].clone()
        for its, layer in zip(total, layers, strict=True):
            its[:, : self.mass[layer][b].shape[1]] += self.mass[layer][b]
        if after > before:
            last = policy.first_local(after)
            first_block = policy.first_local(before) or policy.init  # of the blocks that move
            keys = self._unrotate(layers, b, first, last)[:, :, first_block - first :]
            received = total[..., first_block - first : last - first]
            blocks = (its.flatten(0, 1).unflatten(1, (-1, policy.block)) for its in (keys, received))
            for index, rows in zip(indices, policy.summarize(*blocks).chunk(len(layers), 2), strict=True):
                index.append(rows)
            total = total[..., last - first :].clone()
            self.places.release(layers, first_block // self.places.page_size, last // self.places.page_size)
        for its, layer in zip(total, layers, strict=True):
            self.mass[layer][b] = its
        self._recent = None

    def _unrotate(self, layers: Sequence[int], b: int, start: int, end: int) -> Tensor:
        """Keys of the tokens of whole pages, stored again as at the beginning of the text: [L, G, n, D]"""
        storage = self.memories[layers[0]]
        if any(self.memories[layer] is not storage for layer in layers):
            return torch.cat([self._unrotate([layer], b, start, end) for layer in layers])
        pasts = [self._pages(layer, b, start, end) for layer in layers]
        if self._mark is not None:
            for layer, past in zip(layers, pasts, strict=True):
                self._mark.keep(layer, storage, b, start // self.places.page_size, past.block_table[0])
        past = Past(np.concatenate([past.block_table for past in pasts]), np.full(len(layers), end - start))
        keys, values = storage.read(past)
        cos, sin = present(self._rotations(start, end)[0])
        keys = rotate(keys, cos, -sin) / self._scale
        storage.append(keys, values, past)
        return keys

    def _rotate(self, layer: int, b: int, start: int, end: int) -> None:
        """Store the keys of the tokens of whole pages, if any, at their places in the text again."""
        if start == end:
            return
        self._hold(layer, start, end)
        storage, past = self.memories[layer], self._pages(layer, b, start, end)
        keys, values = storage.read(past)
        cos, sin = present(self._rotations(start, end)[0])
        storage.append(rotate(keys, cos, sin) / self._scale, values, past)

    def _hold(self, layer: int, start: int, end: int) -> None:
        """Distant tokens come back to be local."""
        size = self.places.page_size
        self.places.hold(layer, max(start, self.policy.init) // size, end // size)

    def _pages(self, layer: int, b: int, start: int, end: int) -> Past:
        size = self.places.page_size
        table = self.places.table_of(layer)[b : b + 1, start // size : end // size]
        return Past(np.ascontiguousarray(table), np.array([end - start]))

    # ---- going back

    def mark(self) -> None:
        super().mark()
        smoothed = [[index.last for index in its] for its in self.indices]
        self._mark = _Mark(self.seq_lens.copy(), [list(its) for its in self.mass], smoothed)

    def truncate(self, seq_len: int | np.ndarray) -> None:
        """Go back. Attention that later tokens paid still counts, unless the cache goes back to its mark."""
        wanted = np.minimum(self.seq_lens, seq_len)
        if self._mark is not None and (wanted == self._mark.seq_lens).all():
            self._mark.restore(self)
        for b, kept in enumerate(wanted.tolist()):
            self._back(b, kept)
        super().truncate(seq_len)

    def _back(self, b: int, kept: int) -> None:
        policy, num_distant, self._recent = self.policy, self.policy.num_distant(kept), None
        first = policy.first_local(num_distant)
        for layer, its in enumerate(self.indices):
            index, mass = its[b], self.mass[layer][b]
            held = policy.first_local(index.num_blocks)
            if held > first:
                size = self.places.page_size
                self._rotate(layer, b, first, min(held, -(-kept // size) * size))
                mass = torch.cat((mass.new_zeros(len(mass), held - first), mass), 1)
                index.truncate(num_distant)
            self.mass[layer][b] = mass[:, : max(0, kept - first)]


@dataclass(slots=True)
class _Mark:
    """The state of a cache at its mark.

    mass, smoothed   as they were
    moved            layer, sequence, number of the first page, and bytes of pages before their keys lost the rotation
    """

    seq_lens: np.ndarray
    mass: list[list[Tensor]]
    smoothed: list[list[Tensor | None]]
    moved: list[tuple[int, int, int, list[Any]]] = field(default_factory=list)

    def keep(self, layer: int, storage: Any, b: int, first: int, pages: np.ndarray) -> None:
        self.moved.append((layer, b, first, [storage.save_page(page) for page in pages.tolist()]))

    def restore(self, cache: DistantCache) -> None:
        size = cache.places.page_size
        for layer, b, first, saved in reversed(self.moved):
            last = first + len(saved)
            cache._hold(layer, first * size, last * size)
            pages = cache.places.table_of(layer)[b, first:last]
            for page, data in zip(pages.tolist(), saved, strict=True):
                cache.memories[layer].load_page(page, data)
        self.moved.clear()
        cache._recent = None
        for layer, its in enumerate(cache.indices):
            for b, index in enumerate(its):
                index.truncate(cache.policy.num_distant(int(self.seq_lens[b])) if not cache.rules[layer].window else 0)
                index.last = self.smoothed[layer][b]
                cache.mass[layer][b] = self.mass[layer][b]
