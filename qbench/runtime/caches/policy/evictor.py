"""`Evictor`: slots of the sequences of a cache, and the policy that says which of their tokens stay."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from qbench.policies import CachePolicy, TokenKinds
from qbench.policies.policy import LayerReader, LayerState
from qbench.runtime.attention.rotations import Rotations
from qbench.runtime.caches.places.places import Places
from qbench.runtime.caches.places.slot_table import NO_HOLE, SlotTable
from qbench.runtime.caches.policy.growth import policies_of_layers, with_room
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.storage.kv_storage import KVStorage, PageMemory
from quant.errors import InputError
from quant.models import ModelConfig


class Evictor:
    """Finds slots for new tokens, and asks the policy after each forward pass of a layer which tokens stay.

    If one token of a decode step is evicted, the next token takes its slot, so that nothing moves. Otherwise the kept
    slots move to the front.

    config       of the model
    places       of all layers
    policy       of layers without a window of their own; the others keep that window
    tables       one per sequence
    expand       of each layer, rows of latents to every head's keys and values; set by the maker of the cache
    token_kinds  set by the maker of the cache if the policy reads them
    peak_bytes   the most that all storages held together
    """

    def __init__(
        self, config: ModelConfig, places: Places[KVStorage], policy: CachePolicy, tables: Sequence[SlotTable]
    ) -> None:
        self.places, self.memories, self.policy, self.tables = places, places.memories, policy, list(tables)
        rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
        self.policies = policies_of_layers(config, policy)
        self.num_groups = self.tables[0].holes.shape[1]
        self.expand: Sequence[Callable[[Tensor], tuple[Tensor, Tensor]]] = ()
        self.token_kinds = TokenKinds()
        self.peak_bytes = 0
        self._mark: _Mark | None = None
        self._scales = [rule.scale for rule in rules]
        self._rotations = Rotations(config)
        self._rope_of = [int(config.rope_of(layer) is config.local_rope) for layer in range(config.num_layers)]
        self._first = self.counts = np.zeros(len(self.tables), dtype=np.int64)

    def begin(self, rows: Sequence[Tensor], seq_lens: np.ndarray, counts: np.ndarray) -> None:
        """A forward pass brings the token ids `rows` [T] behind seq_lens [B] tokens; counts [B] has each T."""
        self._first, self.counts = seq_lens, counts
        for table, row, seen in zip(self.tables, rows, seq_lens.tolist(), strict=True):
            table.see(row, seen)

    @property
    def decodes(self) -> bool:
        """Whether each sequence gets one token."""
        return bool((self.counts == 1).all())

    @property
    def reads_each_query(self) -> bool:
        """Whether the policy of some layer wants more of a query than its part of a sum."""
        return any(
            policy.reads_queries or (policy.observes is not None and policy.observes.each) for policy in self.policies
        )

    def together(self, b: int) -> list[slice]:
        """Layers of a sequence that a decode step handles together."""
        num_layers = len(self.memories)
        if self.policy.same_in_layers and self.tables[b].is_uniform:
            return [slice(0, num_layers)]
        return [slice(layer, layer + 1) for layer in range(num_layers)]

    def past_of(self, b: int, num_slots: int) -> Past:
        return Past(self.places.block_table[b : b + 1], np.array([num_slots]))

    def rooms(self, layer: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Make room for the new tokens of all sequences.

        returns  [B] slots in use, and [B, G] slots that the only new token of each takes, None: the last ones
        """
        layers = slice(layer, layer + 1)
        rooms = [self.make_room(layers, b) for b in range(len(self.tables))]
        ends = np.array([total for total, _ in rooms])
        if all(holes is None for _, holes in rooms):
            return ends, None
        last = np.repeat(ends[:, None] - 1, self.num_groups, axis=1)
        return ends, np.stack([last[b] if holes is None else holes[0].numpy() for b, (_, holes) in enumerate(rooms)])

    def rooms_of_all(self, groups: Sequence[Sequence[slice]]) -> np.ndarray | None:
        """`rooms` for one token per sequence in all layers, with layers grouped per sequence as by `together`.

        returns  [L, B, G] slots that the tokens take; None: the last ones
        """
        found = [[self.make_room(layers, b) for layers in its] for b, its in enumerate(groups)]
        if all(holes is None for its in found for _, holes in its):
            return None
        ends = np.stack([table.held for table in self.tables], axis=1)  # [L, B]
        slots = np.repeat(ends[..., None] - 1, self.num_groups, axis=2)
        for b, (its, rooms) in enumerate(zip(groups, found, strict=True)):
            for layers, (_, holes) in zip(its, rooms, strict=True):
                if holes is not None:
                    slots[layers, b] = holes.numpy()
        return slots

    def make_room(self, layers: slice, b: int) -> tuple[int, Tensor | None]:
        """Enter the new tokens of a sequence into the slots of some layers that have as many.

        returns  slots in use with them, and [l, G] the free ones that the only new token takes, or None
        """
        table, first, num_new = self.tables[b], int(self._first[b]), int(self.counts[b])
        total, holes = int(table.held[layers.start]), table.holes[layers].clone()
        positions = torch.arange(first, first + num_new)
        if (holes != NO_HOLE).any():
            if self.decodes:
                table.place(layers, total, positions, holes)
                return total, holes
            for layer, its in zip(range(layers.start, layers.stop), holes, strict=True):
                index = torch.arange(total - 1).expand(len(its), -1)
                self._compact(layer, b, total, index + (index >= its[:, None]))
            total -= 1
        total += num_new
        for layer in range(layers.start, layers.stop):
            self.places.reserve(layer, self._roomy(layer, total))
        table.place(layers, total, positions, None)
        return total, None

    def _roomy(self, layer: int, total: int) -> int:
        """Slots to reserve for `total`."""
        grows = self.decodes and not self.policies[layer].in_decode and total > self.memories[layer].page_size
        return with_room(total) if grows else total

    def settle(
        self,
        layers: slice,
        b: int,
        weights: Tensor | Iterator[Tensor] | None,
        queries: Tensor | None,
    ) -> None:
        """Let the policy of some layers look at a forward pass that is done, and evict.

        weights  attention weights as `CachePolicy.update` or `update_each` takes them, of one layer after the other
        """
        self.peak_bytes = max(self.peak_bytes, self.places.size_bytes)
        table, layer, num_new = self.tables[b], layers.start, int(self.counts[b])
        policy, total, num_seen = self.policies[layer], int(table.held[layer]), int(self._first[b]) + num_new
        if num_new == 1 and weights is None and not policy.acts_in_decode:
            return
        score = table.score[layers, :, :total]  # [l, G, S]
        state = LayerState(
            layer=layer,
            num_layers=len(self.memories),
            num_new=num_new,
            num_seen=num_seen,
            num_prompt=table.num_prompt,
            positions=table.positions[layers, :, :total],
            score=score,
            tokens=table.tokens[:, :num_seen].expand(len(score), -1),
            reader=_Reader(lambda: self._keys_values(layer, b, total), self._rotation_of(layer)),
            softmax_scale=self._scales[layer],
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
            table.last_eviction = num_seen
            table.holes[layers] = dropped
        if keep is None or (keep.shape[2] == total and not policy.per_head_lengths):
            return
        table.last_eviction = num_seen
        for each, its in zip(range(layers.start, layers.stop), keep, strict=True):
            self._compact(each, b, total, its)
            self.places.trim(each, int(max(other.held[each] for other in self.tables)))
        table.trim()

    def forget(self, seq_lens: np.ndarray, wanted: np.ndarray) -> None:
        """Go back from seq_lens [B] tokens to `wanted` [B].

        raises   InputError if the policy has evicted tokens since then
        """
        if (wanted == 0).all():
            for table in self.tables:
                table.clear()
            return
        if any(kept < table.last_eviction for kept, table in zip(wanted.tolist(), self.tables, strict=True)):
            raise InputError(
                f"truncate to {wanted.tolist()} tokens, but policy {self.policy.name} has evicted some at "
                f"{[table.last_eviction for table in self.tables]}; go back to 0 or to a marked length"
            )
        for table, forgotten in zip(self.tables, (seq_lens - wanted).tolist(), strict=True):
            table.held -= forgotten

    def mark(self, seq_lens: np.ndarray) -> None:
        """Remember everything that is held at seq_lens [B] tokens, so that `go_back` to them works later."""
        self._mark = _Mark(
            seq_lens.copy(), [memory.save() for memory in self.memories], [table.copy() for table in self.tables]
        )

    def go_back(self, seq_lens: np.ndarray, wanted: np.ndarray) -> None:
        """`forget`, or everything that was held at the marked lengths."""
        mark = self._mark
        if mark is not None and (wanted == mark.seq_lens).all():
            for memory, saved in zip(self.memories, mark.stored, strict=True):
                memory.load(saved)
            self.tables = [table.copy() for table in mark.tables]
            return
        self.forget(seq_lens, wanted)
        if mark is not None and (wanted < mark.seq_lens).any():
            self._mark = None  # other tokens may follow

    def held_positions(self, layer: int) -> list[list[list[int]]]:
        """Places in the text, ascending, of the tokens that each KV head of each sequence holds: [B][G][n]"""
        return [[table.positions_of(layer, g) for g in range(table.holes.shape[1])] for table in self.tables]

    def _keys_values(self, layer: int, b: int, total: int) -> tuple[Tensor, Tensor]:
        memory = self.memories[layer]
        keys, values = memory.read(self.past_of(b, total))
        return (keys, values) if memory.latents is None else self.expand[layer](keys[:, 0])

    def _compact(self, layer: int, b: int, total: int, keep: Tensor) -> None:
        self.memories[layer].compact(self.past_of(b, total), keep[None])
        self.tables[b].compact(layer, keep)

    def _rotation_of(self, layer: int) -> Callable[[int, int], tuple[Tensor, Tensor] | None]:
        return lambda start, end: self._rotations(start, end)[self._rope_of[layer]]


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
