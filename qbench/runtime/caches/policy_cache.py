"""`PolicyCache`: keys and values of the tokens that a policy keeps."""

from collections.abc import Sequence
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
from qbench.runtime.caches.kv_storage import KVStorage
from qbench.runtime.caches.step import Step
from quant.errors import InputError
from quant.models import ModelConfig

SLACK = 16  # a storage is trimmed when it has room for more slots than these beyond the used ones
NO_HOLE = -1


class PolicyCache(Cache):
    """A storage per layer holds the bytes; the policy says after each forward pass of a layer which tokens stay.

    Keys keep the rotation of their place in the text. A layer with a window of its own keeps that window. In a decode
    step that evicts one token, the next token takes its slot, so that nothing moves; otherwise the kept slots move to
    the front. A layer evicts before the next layer runs, so that only one layer holds a whole prompt.

    storages   one per layer
    raises     InputError if the attention of the model depends on distances that eviction changes
    """

    one_width = False

    def __init__(self, config: ModelConfig, storages: Sequence[KVStorage], policy: CachePolicy, batch: int) -> None:
        super().__init__(config, batch)
        check_policy_suits(config)
        self.storages, self.policy = list(storages), policy
        self._layers = [_Layer(batch, config.num_kv_heads) for _ in storages]
        self._policies = [Window(rule.window) if rule.window else policy for rule in self.rules]
        self._tokens = torch.empty(batch, 0, dtype=torch.int64)
        self._num_prompt = np.zeros(batch, dtype=np.int64)
        self._last_eviction = np.zeros(batch, dtype=np.int64)  # tokens seen when a layer last evicted some
        self._rotations = Rotations(config)
        self._rope_of = [int(config.rope_of(layer) is config.local_rope) for layer in range(config.num_layers)]
        self._unrotated: Tensor | None = None
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
        return np.array([layer.held - (layer.holes[:, 0] != NO_HOLE).numpy() for layer in self._layers])

    def held_positions(self, layer: int) -> list[list[list[int]]]:
        """Places in the text, ascending, of the tokens that each KV head of each sequence holds: [B][G][n]"""
        slots = self._layers[layer]
        return [[slots.positions_of(b, g) for g in range(slots.holes.shape[1])] for b in range(self.batch)]

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
        if self.cu_seqlens is None and self._layers[layer].is_uniform:
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
        storage, slots, policy = self.storages[layer], self._layers[layer], self._policies[layer]
        num_new, first = k.shape[2], int(self.seq_lens[which][0])
        total, holes = self._make_room(layer, which, num_new)
        storage.append(which, total - num_new, k, v, holes)
        slots.place(which, total, torch.arange(first, first + num_new), holes)
        rule = self.rules[layer]
        out, weights = storage.attend(which, total, q, rule, policy.observes)
        state = LayerState(
            layer=layer,
            num_layers=len(self.storages),
            num_new=num_new,
            num_seen=first + num_new,
            num_prompt=int(self._num_prompt[which][0]),
            positions=slots.positions[which, :, :total],
            score=None if slots.score is None else slots.score[which, :, :total],
            tokens=self._tokens[which, : first + num_new],
            reader=_Reader(self, layer, which, total),
            softmax_scale=rule.scale,
            queries=unrotated if policy.reads_queries else None,
            token_kinds=self.token_kinds,
            notes=slots.notes[which] if policy.per_head_lengths else None,
        )
        if weights is not None:
            score = policy.update(state, weights) if isinstance(weights, Tensor) else policy.update_each(state, weights)
            state.score = slots.set_score(which, score)
        keep = policy.keep(state)
        self.peak_bytes = max(self.peak_bytes, self.size_bytes)
        if keep is not None and (keep.shape[2] < total or policy.per_head_lengths):
            self._evict(layer, which, total, keep, is_decode=num_new == 1)
            self._last_eviction[which] = first + num_new
        return out

    def _make_room(self, layer: int, which: slice, num_new: int) -> tuple[int, Tensor | None]:
        """Slots in use after the forward pass, and [B, G] the free ones among them that the new token takes, or None"""
        storage, slots = self.storages[layer], self._layers[layer]
        total, holes = int(slots.held[which][0]), slots.holes[which].clone()
        if (holes != NO_HOLE).any():
            if num_new == 1:
                slots.holes[which] = NO_HOLE
                return total, holes
            index = torch.arange(total - 1).expand(*holes.shape, -1)
            self._compact(layer, which, total, index + (index >= holes[..., None]))
            total -= 1
        total += num_new
        storage.reserve(total if num_new > 1 else -(-total // SLACK) * SLACK)
        slots.held[which] = total
        return total, None

    def _evict(self, layer: int, which: slice, total: int, keep: Tensor, *, is_decode: bool) -> None:
        storage, slots = self.storages[layer], self._layers[layer]
        if is_decode and keep.shape[2] == total - 1 and not self._policies[layer].per_head_lengths:
            hole = total * (total - 1) // 2 - keep.sum(2)  # [B, G]: the slot that is missing
            slots.holes[which] = hole
            return
        self._compact(layer, which, total, keep)
        longest = int(slots.held.max())
        if storage.capacity > longest + SLACK:
            storage.trim(longest)

    def _compact(self, layer: int, which: slice, total: int, keep: Tensor) -> None:
        self.storages[layer].compact(which, total, keep)
        self._layers[layer].compact(which, keep)

    def mark(self) -> None:
        """Remember everything that is held, so that `truncate` to this length works once tokens have been evicted."""
        self._mark = _Mark(
            self.seq_lens.copy(),
            [storage.save() for storage in self.storages],
            [layer.copy() for layer in self._layers],
            self._num_prompt.copy(),
            self._last_eviction.copy(),
        )

    def truncate(self, seq_len: int | np.ndarray) -> None:
        wanted = np.minimum(self.seq_lens, seq_len)
        if self._mark is not None and (wanted == self._mark.seq_lens).all():
            self._restore(self._mark)
        elif (wanted == 0).all():
            self._layers = [_Layer(self.batch, layer.holes.shape[1]) for layer in self._layers]
            self._last_eviction[:] = 0
        elif (wanted < self._last_eviction).any():
            raise InputError(
                f"truncate to {wanted.tolist()} tokens, but policy {self.policy.name} has evicted some at "
                f"{self._last_eviction.tolist()}; go back to 0 or to a marked length"
            )
        else:
            gone = self.seq_lens - wanted
            for layer in self._layers:
                layer.held = layer.held - gone
        super().truncate(wanted)

    def _restore(self, mark: "_Mark") -> None:
        for storage, saved in zip(self.storages, mark.stored, strict=True):
            storage.load(saved)
        self._layers = [layer.copy() for layer in mark.layers]
        self._num_prompt, self._last_eviction = mark.num_prompt.copy(), mark.last_eviction.copy()


class _Layer:
    """Contents of the slots of one layer.

    held       [B] int64: slots in use
    holes      [B, G] int64: a slot in use whose token has been evicted, or NO_HOLE
    positions  [B, G, capacity] int64, -1 in a slot without a token of its head
    score      [B, G, capacity] float32, or None if the policy has no scores
    notes      [B, G] int64, as in `LayerState`
    """

    def __init__(self, batch: int, num_kv_heads: int) -> None:
        self.held = np.zeros(batch, dtype=np.int64)
        self.holes = torch.full((batch, num_kv_heads), NO_HOLE)
        self.positions = torch.zeros(batch, num_kv_heads, 0, dtype=torch.int64)
        self.score: Tensor | None = None
        self.notes = torch.zeros(batch, num_kv_heads, dtype=torch.int64)

    @property
    def is_uniform(self) -> bool:
        """Whether all sequences have as many slots, with a hole or without."""
        has_hole = (self.holes[:, 0] != NO_HOLE).numpy()
        return bool((self.held == self.held[0]).all() and (has_hole == has_hole[0]).all())

    def positions_of(self, b: int, g: int) -> list[int]:
        """Ascending positions of the tokens of one head."""
        hole, held = int(self.holes[b, g]), self.positions[b, g, : self.held[b]]
        return sorted(position for slot, position in enumerate(held.tolist()) if slot != hole and position >= 0)

    def place(self, which: slice, total: int, positions: Tensor, holes: Tensor | None) -> None:
        """Enter new tokens: behind the others so that `total` slots are in use, or in the free slots."""
        if total > self.positions.shape[2]:
            room = max(total, 2 * self.positions.shape[2]) - self.positions.shape[2]
            self.positions = torch.nn.functional.pad(self.positions, (0, room))
            self.score = None if self.score is None else torch.nn.functional.pad(self.score, (0, room))
        if holes is None:
            new = slice(total - len(positions), total)
            self.positions[which, :, new] = positions
            if self.score is not None:
                self.score[which, :, new] = 0
        else:
            self.positions[which].scatter_(2, holes[..., None], int(positions[0]))
            if self.score is not None:
                self.score[which].scatter_(2, holes[..., None], 0)

    def set_score(self, which: slice, score: Tensor) -> Tensor:
        """Keep the score [B, G, S]; returns it as it is kept."""
        if self.score is None:
            self.score = torch.zeros(self.positions.shape)
        kept = self.score[which, :, : score.shape[2]]
        kept.copy_(score)
        return kept

    def compact(self, which: slice, keep: Tensor) -> None:
        count = keep.shape[2]
        is_empty, keep = keep < 0, keep.clamp(min=0)
        self.positions[which, :, :count] = self.positions[which].gather(2, keep).masked_fill_(is_empty, -1)
        if self.score is not None:
            self.score[which, :, :count] = self.score[which].gather(2, keep).masked_fill_(is_empty, 0)
        self.held[which] = count
        self.holes[which] = NO_HOLE

    def copy(self) -> "_Layer":
        other = _Layer(*self.holes.shape)
        other.held, other.holes, other.positions = self.held.copy(), self.holes.clone(), self.positions.clone()
        other.score = None if self.score is None else self.score.clone()
        other.notes = self.notes.clone()
        return other


@dataclass(frozen=True, slots=True)
class _Mark:
    """Everything that a cache held."""

    seq_lens: np.ndarray
    stored: list[object]
    layers: list[_Layer]
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
