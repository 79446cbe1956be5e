"""`PolicyCache`: keys and values of the tokens that a policy keeps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from qbench.policies import CachePolicy, TokenKinds
from qbench.policies.policy import LayerReader, LayerState
from qbench.policies.positions import Window
from qbench.runtime.attention.rope import rotate
from qbench.runtime.attention.rotations import Rotations
from qbench.runtime.caches.cache import Cache
from qbench.runtime.caches.kernel_storage import KernelStorage
from qbench.runtime.caches.kernel_view import KernelView
from qbench.runtime.caches.kv_storage import KVStorage
from qbench.runtime.caches.slot_table import NO_HOLE, SlotTable
from qbench.runtime.caches.step import Step
from quant.errors import InputError
from quant.models import ModelConfig

SLACK = 16  # a storage is trimmed when it has room for more slots than these beyond the used ones


class PolicyCache(Cache):
    """A storage per layer holds the bytes; the policy says after each forward pass of a layer which tokens stay.

    Keys keep the rotation of their place in the text. A layer with a window of its own keeps that window. In a decode
    step that evicts one token, the next token takes its slot, so that nothing moves; otherwise the kept slots move to
    the front. A layer evicts before the next layer runs, so that only one layer holds a whole prompt.

    storages   one per layer
    raises     InputError if the attention of the model depends on distances that eviction changes
    """

    def __init__(self, config: ModelConfig, storages: Sequence[KVStorage], policy: CachePolicy, batch: int) -> None:
        super().__init__(config, batch)
        check_policy_suits(config)
        self.storages, self.policy = list(storages), policy
        self.one_width = any(storage.one_width for storage in storages)
        self._slots = SlotTable(len(storages), batch, config.num_kv_heads)
        self._policies = [Window(rule.window) if rule.window else policy for rule in self.rules]
        self._tokens = torch.empty(batch, 0, dtype=torch.int64)
        self._num_prompt = np.zeros(batch, dtype=np.int64)
        self._last_eviction = np.zeros(batch, dtype=np.int64)  # tokens seen when a layer last evicted some
        self._rotations = Rotations(config)
        self._rope_of = [int(config.rope_of(layer) is config.local_rope) for layer in range(config.num_layers)]
        self._unrotated: Tensor | None = None
        self._single_layers = [slice(layer, layer + 1) for layer in range(len(storages))]
        # In one call all layers attend by one rule, so that the first one's policy is everyone's.
        self._observe = self._policies[0].observes
        self._in_kernels = all(isinstance(storage, KernelStorage) for storage in storages)
        self._heads_per_kv = config.num_heads // config.num_kv_heads
        self._mark: _Mark | None = None
        self.peak_bytes = 0  # most that all storages held together
        self.token_kinds = TokenKinds()  # set by the maker of the cache if the policy reads them

    @property
    def bytes_per_token(self) -> float:
        """Bytes per token seen, which fall as the text grows."""
        return self.size_bytes / max(1, self.batch * self.seq_len)

    @property
    def size_bytes(self) -> int:
        return sum(storage.size_bytes for storage in self.storages)

    @property
    def num_held(self) -> np.ndarray:
        """[layers, B] int64: tokens that are held"""
        return self._slots.num_held

    def held_positions(self, layer: int) -> list[list[list[int]]]:
        """Places in the text, ascending, of the tokens that each KV head of each sequence holds: [B][G][n]"""
        slots = self._slots
        return [[slots.positions_of(layer, b, g) for g in range(slots.holes.shape[2])] for b in range(self.batch)]

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        counts = np.full(self.batch, tokens.shape[1]) if step.counts is None else step.counts
        ends = self.seq_lens + counts
        if ends.max() > self._tokens.shape[1]:
            room = max(int(ends.max()), 2 * self._tokens.shape[1])
            self._tokens = torch.nn.functional.pad(self._tokens, (0, room - self._tokens.shape[1]))
        rows = list(tokens) if step.counts is None else step.tokens[0].split(counts.tolist())
        for kept, row, seen, end in zip(self._tokens, rows, self.seq_lens.tolist(), ends.tolist(), strict=True):
            kept[seen:end] = row
        self._num_prompt = np.where(counts > 1, ends, self._num_prompt)
        return step

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        self._unrotated = q
        return self.attend(layer, rotate(q, *rope), rotate(k, *rope), v, positions)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        unrotated = q if self._unrotated is None else self._unrotated
        self._unrotated = None
        if self.cu_seqlens is None and self._slots.is_uniform(slice(layer, layer + 1)):
            return self._pass(layer, slice(None), q, k, v, unrotated)
        bounds = range(self.batch + 1) if self.cu_seqlens is None else self.cu_seqlens.tolist()
        parts = []
        for b, (start, end) in enumerate(pairwise(bounds)):
            one = slice(b, b + 1)
            some = (slice(None), slice(None), slice(start, end)) if self.cu_seqlens is not None else (one,)
            parts.append(self._pass(layer, one, q[some], k[some], v[some], unrotated[some]))
        return torch.cat(parts, dim=0 if self.cu_seqlens is None else 2)

    def _pass(self, layer: int, which: slice, q: Tensor, k: Tensor, v: Tensor, unrotated: Tensor) -> Tensor:
        """`attend` of the sequences `which`, all of which have as many slots, seen tokens and new tokens."""
        storage, policy, num_new = self.storages[layer], self._policies[layer], k.shape[2]
        total, holes = self._make_room(slice(layer, layer + 1), which, num_new)
        storage.append(which, total - num_new, k, v, None if holes is None else holes[0])
        out, weights = storage.attend(which, total, q, self.rules[layer], policy.observes)
        self.peak_bytes = max(self.peak_bytes, self.size_bytes)
        self._settle(slice(layer, layer + 1), which, num_new, weights, unrotated if policy.reads_queries else None)
        return out

    def has_kernel_view(self, num_tokens: int) -> bool:
        if self.cu_seqlens is not None or num_tokens > 1 or not self._in_kernels:
            return False
        one_size = len({storage.capacity for storage in self.storages}) == 1  # as the call wants it
        return one_size and all(self._slots.is_uniform(layers) for layers in self._single_layers)

    def kernel_view(self, num_tokens: int) -> KernelView:
        slots, num_layers = self._slots, len(self.storages)
        all_layers = slice(0, num_layers)
        groups = [all_layers] if self.policy.same_in_layers and slots.is_uniform(all_layers) else self._single_layers
        every = slice(None)
        rooms = [self._make_room(layers, every, 1) for layers in groups]
        largest = max(storage.capacity for storage in self.storages)
        for storage in self.storages:
            storage.reserve(largest)
        self.peak_bytes = max(self.peak_bytes, self.size_bytes)
        has_holes = any(holes is not None for _, holes in rooms)
        places = np.empty((num_layers, *slots.holes.shape[1:]), dtype=np.int64) if has_holes else None
        mass: list[Tensor] = []
        for layers, (total, holes) in zip(groups, rooms, strict=True):
            if places is not None:
                places[layers] = total - 1 if holes is None else holes.numpy()
            mass.append(torch.empty(layers.stop - layers.start, *slots.holes.shape[1:], total))

        def settle() -> None:
            for layers, weights in zip(groups, mass, strict=True):
                self._settle(layers, every, 1, self._weights(weights.flatten(0, 1)), None)

        return KernelView(
            [storage.store for storage in self.storages if isinstance(storage, KernelStorage)],
            np.arange(self.batch, dtype=np.int32)[:, None],
            slots.held.copy(),
            places,
            None if self._observe is None else [layer.numpy() for weights in mass for layer in weights],
            settle,
        )

    def _weights(self, mass: Tensor) -> Tensor | Iterator[Tensor] | None:
        """[B, G, S] -> weights of the only query as policies take them; None if nothing is observed"""
        if self._observe is None:
            return None
        # The weights of each query are averaged over the heads of a group.
        return iter([mass[:, :, None] / self._heads_per_kv]) if self._observe.each else mass

    def _make_room(self, layers: slice, which: slice, num_new: int) -> tuple[int, Tensor | None]:
        """Enter new tokens into the slots of some layers that have as many.

        returns  slots in use with them, and [l, B, G] the free ones that the only new token takes, or None
        """
        slots = self._slots
        total, holes = int(slots.held[layers, which][0, 0]), slots.holes[layers, which].clone()
        first = int(self.seq_lens[which][0])
        positions = torch.arange(first, first + num_new)
        if (holes != NO_HOLE).any():
            if num_new == 1:
                slots.place(layers, which, total, positions, holes)
                return total, holes
            for layer, its in zip(range(layers.start, layers.stop), holes, strict=True):
                index = torch.arange(total - 1).expand(*its.shape, -1)
                self._compact(layer, which, total, index + (index >= its[..., None]))
            total -= 1
        total += num_new
        for storage in self.storages[layers]:
            storage.reserve(total if num_new > 1 else -(-total // SLACK) * SLACK)
        slots.place(layers, which, total, positions, None)
        return total, None

    def _settle(
        self,
        layers: slice,
        which: slice,
        num_new: int,
        weights: Tensor | Iterator[Tensor] | None,
        queries: Tensor | None,
    ) -> None:
        """Let the policy of some layers look at a forward pass that is done, and evict.

        weights  attention weights as `CachePolicy.update` or `update_each` takes them, of one layer after the other
        """
        slots, layer = self._slots, layers.start
        policy, total, first = self._policies[layer], int(slots.held[layer, which][0]), int(self.seq_lens[which][0])
        score = slots.score[layers, which, :, :total]  # [l, b, G, S]
        state = LayerState(
            layer=layer,
            num_layers=len(self.storages),
            num_new=num_new,
            num_seen=first + num_new,
            num_prompt=int(self._num_prompt[which][0]),
            positions=slots.positions[layers, which, :, :total].flatten(0, 1),
            score=score.flatten(0, 1),
            tokens=self._tokens[which, : first + num_new],
            reader=_Reader(self, layer, which, total),
            softmax_scale=self.rules[layer].scale,
            queries=queries,
            token_kinds=self.token_kinds,
            notes=slots.notes[layers, which].flatten(0, 1),
        )
        if weights is not None:
            is_sum = isinstance(weights, Tensor)
            state.score = policy.update(state, weights) if is_sum else policy.update_each(state, weights)
        dropped = policy.evict_one(state) if num_new == 1 else None  # [l b, G]
        keep = policy.keep(state) if dropped is None else None
        if weights is not None:
            score.copy_(state.score.view(score.shape))
        if dropped is not None:
            self._last_eviction[which] = first + num_new
            slots.holes[layers, which] = dropped.view(slots.holes[layers, which].shape)
        if keep is None or (keep.shape[2] == total and not policy.per_head_lengths):
            return
        self._last_eviction[which] = first + num_new
        for each, one in zip(range(layers.start, layers.stop), keep.unflatten(0, (-1, score.shape[1])), strict=True):
            self._compact(each, which, total, one)
            longest = int(slots.held[each].max())
            if self.storages[each].capacity > longest + SLACK:
                self.storages[each].trim(longest)
        slots.trim()

    def _compact(self, layer: int, which: slice, total: int, keep: Tensor) -> None:
        self.storages[layer].compact(which, total, keep)
        self._slots.compact(layer, which, keep)

    def mark(self) -> None:
        self._mark = _Mark(
            self.seq_lens.copy(),
            [storage.save() for storage in self.storages],
            self._slots.copy(),
            self._num_prompt.copy(),
            self._last_eviction.copy(),
        )

    def truncate(self, seq_len: int | np.ndarray) -> None:
        wanted = np.minimum(self.seq_lens, seq_len)
        if self._mark is not None and (wanted == self._mark.seq_lens).all():
            self._restore(self._mark)
        elif (wanted == 0).all():
            self._slots = SlotTable(*self._slots.holes.shape)
            self._last_eviction[:] = 0
        elif (wanted < self._last_eviction).any():
            raise InputError(
                f"truncate to {wanted.tolist()} tokens, but policy {self.policy.name} has evicted some at "
                f"{self._last_eviction.tolist()}; go back to 0 or to a marked length"
            )
        else:
            self._slots.held -= self.seq_lens - wanted
        super().truncate(wanted)

    def _restore(self, mark: "_Mark") -> None:
        for storage, saved in zip(self.storages, mark.stored, strict=True):
            storage.load(saved)
        self._slots = mark.slots.copy()
        self._num_prompt, self._last_eviction = mark.num_prompt.copy(), mark.last_eviction.copy()


@dataclass(frozen=True, slots=True)
class _Mark:
    """Everything that a cache held."""

    seq_lens: np.ndarray
    stored: list[object]
    slots: SlotTable
    num_prompt: np.ndarray
    last_eviction: np.ndarray


class _Reader(LayerReader):
    """Keys, values and rotation of a layer of some sequences."""

    def __init__(self, cache: PolicyCache, layer: int, which: slice, total: int) -> None:
        self._cache, self._layer, self._where = cache, layer, (which, total)

    def keys(self) -> Tensor:
        return self._cache.storages[self._layer].read(*self._where)[0]

    def values(self) -> Tensor:
        return self._cache.storages[self._layer].read(*self._where)[1]

    def rotation(self, start: int, end: int) -> tuple[Tensor, Tensor] | None:
        return self._cache._rotations(start, end)[self._cache._rope_of[self._layer]]


def check_policy_suits(config: ModelConfig) -> None:
    """raises InputError for attention that depends on the distance of slots"""
    if any(config.attention_rule(layer).has_alibi for layer in range(config.num_layers)):
        raise InputError(
            f"{config.architecture.name} lowers scores by distance (ALiBi), which eviction changes; use policy full"
        )
