"""`PolicyCache`: keys and values of the tokens that a policy keeps."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from qbench.policies import CachePolicy, Observe, TokenKinds
from qbench.policies.policy import LayerReader, LayerState
from qbench.policies.positions import Window
from qbench.runtime.attention.rope import rotate
from qbench.runtime.attention.rotations import Rotations
from qbench.runtime.caches.kernel_view import KernelView, LayerView
from qbench.runtime.caches.kv_cache import KVCache
from qbench.runtime.caches.kv_storage import KVStorage, PageMemory
from qbench.runtime.caches.latent_storage import LatentStorage
from qbench.runtime.caches.latent_view import Span, StoredLatents, spans_of
from qbench.runtime.caches.past import Past
from qbench.runtime.caches.places import Places
from qbench.runtime.caches.slot_table import NO_HOLE, SlotTable
from qbench.runtime.caches.step import Step
from quant.errors import InputError
from quant.models import ModelConfig
from quant.present import present


class PolicyCache(KVCache):
    """The policy says after each forward pass of a layer which tokens of each sequence stay.

    Keys keep the rotation of their place in the text, those in rows of latents too, so that no token that moves is
    rotated again. Latents are one KV head: all heads keep the same tokens. Policies that read keys then see those that
    each head makes of the latents. A layer with a window of its own keeps that window. In a decode
    step that evicts one token, the next token takes its slot, so that nothing moves; otherwise the kept slots move to
    the front. A layer evicts before the next layer runs, so that only one layer holds a whole prompt, unless layers
    run in one call. The results of a sequence do not depend on the others.

    tables   one per sequence; None: of sequences without a token
    mode     of latent attention, as `Latents.mode`
    expand   of each layer, rows of latents to every head's keys and values; set by the maker of the cache
    raises   InputError if the attention of the model depends on distances that eviction changes
    """

    def __init__(
        self,
        config: ModelConfig,
        places: Places[KVStorage],
        policy: CachePolicy,
        tables: Sequence[SlotTable] | None = None,
        mode: str | None = None,
    ) -> None:
        super().__init__(config, places)
        check_policy_suits(config)
        self.policy = policy
        latents = self.memories[0].latents
        self.latents = None if latents is None else replace(latents, mode=mode)
        self._num_groups = 1 if latents else config.num_kv_heads
        self._rows = [storage for storage in self.memories if isinstance(storage, LatentStorage)]
        self.expand: Sequence[Callable[[Tensor], tuple[Tensor, Tensor]]] = ()
        self.tables = [slot_table(config, self.memories) for _ in range(self.batch)] if tables is None else list(tables)
        self._policies = [Window(rule.window) if rule.window else policy for rule in self.rules]
        self._rotations = Rotations(config)
        self._rope_of = [int(config.rope_of(layer) is config.local_rope) for layer in range(config.num_layers)]
        self._unrotated: Tensor | None = None
        self._counts = np.zeros(self.batch, dtype=np.int64)  # new tokens of each sequence
        # In one call all layers attend by one rule, so that the first one's policy is everyone's.
        self._observe = self._policies[0].observes
        self._heads_per_kv = config.num_heads // self._num_groups
        self._mark: _Mark | None = None
        self._peak_bytes = 0  # most that all storages held together
        self.token_kinds = TokenKinds()  # set by the maker of the cache if the policy reads them

    @property
    def bytes_per_token(self) -> float:
        """Bytes per token seen, which fall as the text grows."""
        return self.size_bytes / max(1, self.batch * self.seq_len)

    @property
    def peak_bytes(self) -> int:
        return self._peak_bytes

    @property
    def num_held(self) -> np.ndarray:
        """[layers, B] int64: tokens that are held"""
        return np.stack([table.num_held for table in self.tables], axis=1)

    def held_positions(self, layer: int) -> list[list[list[int]]]:
        """Places in the text, ascending, of the tokens that each KV head of each sequence holds: [B][G][n]"""
        return [[table.positions_of(layer, g) for g in range(table.holes.shape[1])] for table in self.tables]

    def begin(self, tokens: Tensor, num_valid: Sequence[int] | np.ndarray | None = None) -> Step:
        step = super().begin(tokens, num_valid)
        self._counts = np.full(self.batch, tokens.shape[1]) if step.counts is None else step.counts
        rows = list(tokens) if step.counts is None else step.tokens[0].split(self._counts.tolist())
        for table, row, seen in zip(self.tables, rows, self.seq_lens.tolist(), strict=True):
            table.see(row, seen)
        return step

    # ---- layer by layer, from Python

    def rope_attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, rope: tuple[Tensor, Tensor], positions: Tensor
    ) -> Tensor:
        self._unrotated = q
        return self.attend(layer, rotate(q, *rope), rotate(k, *rope), v, positions)

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        unrotated = q if self._unrotated is None else self._unrotated
        self._unrotated = None
        if self.cu_seqlens is None:
            parts = [self._of_sequence(layer, b, *(x[b : b + 1] for x in (q, k, v, unrotated))) for b in range(len(q))]
            return torch.cat(parts) if len(parts) > 1 else parts[0]
        spans = enumerate(pairwise(self.cu_seqlens.tolist()))
        new = [(b, slice(start, end)) for b, (start, end) in spans]
        return torch.cat([self._of_sequence(layer, b, *(x[:, :, s] for x in (q, k, v, unrotated))) for b, s in new], 2)

    def _of_sequence(self, layer: int, b: int, q: Tensor, k: Tensor, v: Tensor, unrotated: Tensor) -> Tensor:
        """`attend` of one sequence."""
        storage, policy = self.memories[layer], self._policies[layer]
        layers = slice(layer, layer + 1)
        total, holes = self._make_room(layers, b, k.shape[2])
        past = self._past_of(b, total)
        storage.append(k, v, past, holes)
        out, weights = storage.attend(q, past, self.rules[layer], policy.observes)
        self._settle(layers, b, k.shape[2], weights, unrotated if policy.reads_queries else None)
        return out

    def _past_of(self, b: int, num_slots: int) -> Past:
        return Past(self.places.block_table[b : b + 1], np.array([num_slots]))

    # ---- in calls of cpu_kernels

    def has_kernel_view(self, num_tokens: int) -> bool:
        one_size = len({storage.page_size for storage in self.memories}) == 1  # as the call wants it
        if self.latents is not None:
            return self.latents.in_kernels and self._decodes
        return self._in_stores and self._decodes and one_size

    @property
    def _decodes(self) -> bool:
        """Whether each sequence gets one token."""
        return bool((self._counts == 1).all())

    def kernel_view(self, num_tokens: int) -> KernelView:
        num_layers, batch = len(self.memories), self.batch
        groups = [self._together(table) for table in self.tables]
        rooms = [
            [self._make_room(layers, b, 1) for layers in its] for b, its in enumerate(groups)
        ]  # [B][groups] of slots in use, and holes
        largest = max(storage.page_size for storage in self.memories)
        if self.latents is None:  # run_layers takes pages of one size
            for layer in range(num_layers):
                self.places.reserve(layer, largest)
        ends = np.stack([table.held for table in self.tables], axis=1)  # [L, B]
        has_holes = any(holes is not None for its in rooms for _, holes in its)
        slots = np.repeat(ends[..., None] - 1, self.tables[0].holes.shape[1], axis=2) if has_holes else None
        for b, (its, found) in enumerate(zip(groups, rooms, strict=True)):
            for layers, (_, holes) in zip(its, found, strict=True):
                if slots is not None and holes is not None:
                    slots[layers, b] = holes.numpy()
        heads = self.tables[0].holes.shape[1]
        mass = None if self._observe is None else torch.empty(num_layers, batch, heads, int(ends.max()))

        def settle() -> None:
            for b, its in enumerate(groups):
                for layers in its:
                    total = int(ends[layers.start, b])
                    weights = None if mass is None else self._weights(self._observe, mass[layers, b, :, :total])
                    self._settle(layers, b, 1, weights, None)

        return KernelView(
            self._stores or [storage.rows_of_kernels() for storage in self._rows],
            self.places.block_table,
            ends,
            slots,
            None if mass is None else list(mass.numpy()),
            settle,
        )

    def _together(self, table: SlotTable) -> list[slice]:
        """Layers of a sequence that a decode step handles together."""
        num_layers = len(self.memories)
        if self.policy.same_in_layers and table.is_uniform:
            return [slice(0, num_layers)]
        return [slice(layer, layer + 1) for layer in range(num_layers)]

    def _weights(self, observe: Observe | None, mass: Tensor) -> Tensor | Iterator[Tensor]:
        """[l, G, S] that cpu_kernels filled -> weights as policies take them, of each query if there is only one"""
        each = observe is not None and observe.each
        # The weights of each query are averaged over the heads of a group.
        return iter([mass[:, :, None] / self._heads_per_kv]) if each else mass

    def has_layer_views(self, num_tokens: int) -> bool:
        if not self._in_stores:
            return False
        reads_each = any(
            policy.reads_queries or (policy.observes is not None and policy.observes.each) for policy in self._policies
        )
        return self._decodes or not reads_each

    def layer_view(self, layer: int, num_tokens: int) -> LayerView:
        layers, policy = slice(layer, layer + 1), self._policies[layer]
        ends, slots = self._rooms(layer)
        heads, observe = self.tables[0].holes.shape[1], policy.observes
        mass = None if observe is None else torch.empty(self.batch, heads, int(ends.max()))

        def settle() -> None:
            for b, count in enumerate(self._counts.tolist()):
                weights = None if mass is None else self._weights(observe, mass[b : b + 1, :, : int(ends[b])])
                self._settle(layers, b, count, weights, None)

        return LayerView(
            self._stores[layer],
            self.places.block_table,
            ends,
            slots,
            None if mass is None else mass.numpy(),
            0 if observe is None else observe.queries or 0,
            settle,
        )

    # ---- over latents

    def latent_spans(self, layer: int, num_tokens: int) -> list[Span]:
        held = np.array([table.num_held[layer] for table in self.tables])
        return spans_of(held + self._counts, num_tokens, self.cu_seqlens)

    def latent_view(self, layer: int, num_tokens: int) -> StoredLatents:
        policy = self._policies[layer]
        ends, slots = self._rooms(layer)
        table = self.places.block_table

        def each() -> tuple[np.ndarray, np.ndarray]:
            counts = self._counts.tolist()
            last = [np.arange(end - count, end) + 1 for end, count in zip(ends.tolist(), counts, strict=True)]
            return np.repeat(table, counts, axis=0), np.concatenate(last)

        def settle(b: int, weights: Tensor | Iterator[Tensor] | None, queries: Tensor | None) -> None:
            self._settle(slice(layer, layer + 1), b, int(self._counts[b]), weights, queries)

        return StoredLatents(
            present(self.latents),
            self.rules[layer],
            spans_of(ends, num_tokens, self.cu_seqlens),
            self._rows[layer],
            table,
            each,
            None if slots is None else slots[:, 0],
            policy.observes,
            settle,
            reads_queries=policy.reads_queries,
        )

    # ---- slots

    def _rooms(self, layer: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Make room for the new tokens of all sequences.

        returns  [B] slots in use, and [B, G] slots that the only new token of each takes, None: the last ones
        """
        layers = slice(layer, layer + 1)
        rooms = [self._make_room(layers, b, count) for b, count in enumerate(self._counts.tolist())]
        ends = np.array([total for total, _ in rooms])
        if all(holes is None for _, holes in rooms):
            return ends, None
        last = np.repeat(ends[:, None] - 1, self._num_groups, axis=1)
        return ends, np.stack([last[b] if holes is None else holes[0].numpy() for b, (_, holes) in enumerate(rooms)])

    def _make_room(self, layers: slice, b: int, num_new: int) -> tuple[int, Tensor | None]:
        """Enter new tokens of a sequence into the slots of some layers that have as many.

        returns  slots in use with them, and [l, G] the free ones that the only new token takes, or None
        """
        table, first = self.tables[b], int(self.seq_lens[b])
        total, holes = int(table.held[layers.start]), table.holes[layers].clone()
        positions = torch.arange(first, first + num_new)
        if (holes != NO_HOLE).any():
            if (self._counts == 1).all():
                table.place(layers, total, positions, holes)
                return total, holes
            for layer, its in zip(range(layers.start, layers.stop), holes, strict=True):
                index = torch.arange(total - 1).expand(len(its), -1)
                self._compact(layer, b, total, index + (index >= its[:, None]))
            total -= 1
        total += num_new
        for layer in range(layers.start, layers.stop):
            self.places.reserve(layer, total)
        table.place(layers, total, positions, None)
        return total, None

    def _settle(
        self,
        layers: slice,
        b: int,
        num_new: int,
        weights: Tensor | Iterator[Tensor] | None,
        queries: Tensor | None,
    ) -> None:
        """Let the policy of some layers look at a forward pass that is done, and evict.

        weights  attention weights as `CachePolicy.update` or `update_each` takes them, of one layer after the other
        """
        self._peak_bytes = max(self._peak_bytes, self.size_bytes)
        table, layer = self.tables[b], layers.start
        policy, total, first = self._policies[layer], int(table.held[layer]), int(self.seq_lens[b])
        score = table.score[layers, :, :total]  # [l, G, S]
        state = LayerState(
            layer=layer,
            num_layers=len(self.memories),
            num_new=num_new,
            num_seen=first + num_new,
            num_prompt=table.num_prompt,
            positions=table.positions[layers, :, :total],
            score=score,
            tokens=table.tokens[:, : first + num_new].expand(len(score), -1),
            reader=_Reader(lambda: self._keys_values(layer, b, total), self._rotation_of(layer)),
            softmax_scale=self.rules[layer].scale,
            queries=queries,
            token_kinds=self.token_kinds,
            notes=table.notes[layers],
            sequence=b,
        )
        if weights is not None:
            is_sum = isinstance(weights, Tensor)
            state.score = policy.update(state, weights) if is_sum else policy.update_each(state, weights)
        dropped = policy.evict_one(state) if num_new == 1 else None  # [l, G]
        keep = policy.keep(state) if dropped is None else None
        if weights is not None:
            score.copy_(state.score)
        if dropped is not None:
            table.last_eviction = first + num_new
            table.holes[layers] = dropped
        if keep is None or (keep.shape[2] == total and not policy.per_head_lengths):
            return
        table.last_eviction = first + num_new
        for each, its in zip(range(layers.start, layers.stop), keep, strict=True):
            self._compact(each, b, total, its)
            self.places.trim(each, int(max(other.held[each] for other in self.tables)))
        table.trim()

    def _keys_values(self, layer: int, b: int, total: int) -> tuple[Tensor, Tensor]:
        keys, values = self.memories[layer].read(self._past_of(b, total))
        return (keys, values) if self.latents is None else self.expand[layer](keys[:, 0])

    def _compact(self, layer: int, b: int, total: int, keep: Tensor) -> None:
        self.memories[layer].compact(self._past_of(b, total), keep[None])
        self.tables[b].compact(layer, keep)

    def _rotation_of(self, layer: int) -> Callable[[int, int], tuple[Tensor, Tensor] | None]:
        return lambda start, end: self._rotations(start, end)[self._rope_of[layer]]

    # ---- going back

    def mark(self) -> None:
        self._mark = _Mark(
            self.seq_lens.copy(),
            [storage.save() for storage in self.memories],
            [table.copy() for table in self.tables],
        )

    def truncate(self, seq_len: int | np.ndarray) -> None:
        wanted = np.minimum(self.seq_lens, seq_len)
        if self._mark is not None and (wanted == self._mark.seq_lens).all():
            for storage, saved in zip(self.memories, self._mark.stored, strict=True):
                storage.load(saved)
            self.tables = [table.copy() for table in self._mark.tables]
        elif (wanted == 0).all():
            for table in self.tables:
                table.clear()
        elif any(kept < table.last_eviction for kept, table in zip(wanted.tolist(), self.tables, strict=True)):
            raise InputError(
                f"truncate to {wanted.tolist()} tokens, but policy {self.policy.name} has evicted some at "
                f"{[table.last_eviction for table in self.tables]}; go back to 0 or to a marked length"
            )
        else:
            for table, forgotten in zip(self.tables, (self.seq_lens - wanted).tolist(), strict=True):
                table.held -= forgotten
        super().truncate(wanted)


@dataclass(frozen=True, slots=True)
class _Mark:
    """Everything that a cache held."""

    seq_lens: np.ndarray
    stored: list[object]
    tables: list[SlotTable]


class _Reader(LayerReader):
    """Keys, values and rotation of a layer of a sequence.

    read      -> keys and values
    """

    def __init__(
        self,
        read: Callable[[], tuple[Tensor, Tensor]],
        rotation: Callable[[int, int], tuple[Tensor, Tensor] | None],
    ) -> None:
        self._read, self._rotation = read, rotation

    def keys(self) -> Tensor:
        return self._read()[0]

    def values(self) -> Tensor:
        return self._read()[1]

    def rotation(self, start: int, end: int) -> tuple[Tensor, Tensor] | None:
        return self._rotation(start, end)


def slot_table(config: ModelConfig, memories: Sequence[PageMemory]) -> SlotTable:
    """The table of an empty sequence in these memories, one per layer."""
    return SlotTable(config.num_layers, 1 if memories[0].latents else config.num_kv_heads)


def check_policy_suits(config: ModelConfig) -> None:
    """raises InputError for attention that depends on the distance of slots"""
    if any(config.attention_rule(layer).has_alibi for layer in range(config.num_layers)):
        raise InputError(
            f"{config.architecture.name} lowers scores by distance (ALiBi), which eviction changes; use policy full"
        )
