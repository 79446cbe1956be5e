"""Policies over KV formats that encode several tokens together, against lists of tokens and groups in plain Python."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import assert_a_batch_is_its_sequences, attended, policy_cache
from support.close import assert_close
from support.logit_bounds import relative_rms

from qbench.policies import policy_names
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.storage.grouped_storage import Groups
from qbench.runtime.caches.storage.slot_groups import SlotGroups
from qbench.runtime.caches.storage.slot_side import order_of
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig

HEADS, WIDTH, GROUP = 2, 32, 32
FORMATS = ["kv-kivi-2", "kv-kivi-4", "kv-int4-kc"]
CONFIG = ModelConfig.of(ArraySource(small_config(head_dim=WIDTH, max_position_embeddings=2048), {}))
SUM_ERROR = 2.0**-24 * 2**5  # scale * code + minimum in float32, of up to 2^5


def on_grid(x: np.ndarray, bits: int) -> np.ndarray:
    """x [n] -> scale * code + minimum, both float16"""
    low = np.float64(np.float16(x.min()))
    scale = np.float64(np.float16(max((x.max() - low) / (2**bits - 1), 2.0**-24)))
    return scale * np.clip(np.rint((x - low) / scale), 0, 2**bits - 1) + low


class SlowHead:
    """One KV head: a list of groups of 32 (position, key, value) as they are read, then a list of floats."""

    def __init__(self, name: str) -> None:
        self.bits, self.residual = (int(name[-1]), 128) if "kivi" in name else (4, 0)
        self.groups: list[list[tuple[int, np.ndarray, np.ndarray]]] = []
        self.floats: list[tuple[int, np.ndarray, np.ndarray]] = []

    def float_of(self, x: np.ndarray) -> np.ndarray:
        return x.astype(np.float16).astype(np.float64) if self.residual else x

    def value(self, value: np.ndarray) -> np.ndarray:
        return on_grid(value, self.bits)  # 32 channels: one group

    def group_of(self, tokens: list) -> list:
        keys = np.stack([on_grid(channel, self.bits) for channel in np.stack([key for _, key, _ in tokens]).T], 1)
        return [(position, key, value) for (position, _, value), key in zip(tokens, keys, strict=True)]

    def fill(self, num_groups: int) -> None:
        while len(self.groups) < num_groups:
            tokens, self.floats = self.floats[:GROUP], self.floats[GROUP:]
            self.groups.append(self.group_of([(p, key, self.rounded_value(value)) for p, key, value in tokens]))

    def rounded_value(self, value: np.ndarray) -> np.ndarray:
        return self.value(value) if self.residual else value

    def due(self, num_tokens: int) -> int:
        return max(0, num_tokens - self.residual) // GROUP

    def add(self, position: int, key: np.ndarray, value: np.ndarray) -> None:
        value = self.float_of(value) if self.residual else self.value(value)  # kv-int4-kc encodes each value at once
        self.floats.append((position, self.float_of(key), value))

    @property
    def tokens(self) -> list:
        return [token for group in self.groups for token in group] + self.floats

    def evict(self, positions: set[int], num_new: int = 0) -> None:
        left = [[token for token in group if token[0] not in positions] for group in self.groups]
        self.floats = [token for token in self.floats if token[0] not in positions]
        count = sum(map(len, left)) + len(self.floats)
        target = min(self.due(count + num_new), count // GROUP)
        whole = sorted(range(len(left)), key=lambda g: -len(left[g]))[:target]
        others = [token for g, group in enumerate(left) if g not in whole for token in group]
        queue = others + self.floats
        kept = []
        for g in sorted(whole):
            group = []
            for token in self.groups[g]:
                gone = token[0] in positions
                group.append(queue.pop(0) if gone else token)
            changed = any(token[0] in positions for token in self.groups[g])
            kept.append(self.group_of([self.as_encoded(t) for t in group]) if changed else group)
        self.groups, self.floats = kept, [(p, self.float_of(key), self.float_of(value)) for p, key, value in queue]
        self.fill(target)

    def as_encoded(self, token: tuple) -> tuple:
        position, key, value = token
        return position, key, self.rounded_value(value)


def heads(total: int, seed: int = 0) -> list[torch.Tensor]:
    make = torch.Generator().manual_seed(seed)
    q, k, v = (torch.randn(1, count, total, WIDTH, generator=make) for count in (4, HEADS, HEADS))
    k[..., 5] *= 8
    return [q, k, v]


def cache_of(name: str, policy: str):
    fmt = KV_FORMATS[name]
    storages = [SlotGroups(Groups(fmt, (None, None), 1, 16, (HEADS, WIDTH, WIDTH))) for _ in range(CONFIG.num_layers)]
    return policy_cache(CONFIG, policy, storages=storages)


@pytest.mark.parametrize("policy", ["random:200", "recent:190", "h2o:193", "snapkv:200,window=8", "tova:222"])
@pytest.mark.parametrize("name", FORMATS)
def test_every_token_matches_the_lists_of_groups(name: str, policy: str) -> None:
    """After each forward pass, with the evictions that the policy chose."""
    passes = (260, *(1,) * 20, 70, 1, 1)
    q, k, v = heads(sum(passes))
    cache, start = cache_of(name, policy), 0
    slow = [SlowHead(name) for _ in range(HEADS)]
    gone: list[set[int]] = [set() for _ in slow]  # evicted at the end of the pass before, still in a slot
    for count in passes:
        some = slice(start, start + count)
        attended(cache, q[:, :, some], k[:, :, some], v[:, :, some], (count,))
        held = cache.held_positions(0)[0]
        for g, one in enumerate(slow):
            if gone[g]:
                one.evict(gone[g], num_new=1 if count == 1 else 0)
            for t in range(start, start + count):
                one.add(t, k[0, g, t].double().numpy(), v[0, g, t].double().numpy())
            lost = {token[0] for token in one.tokens} - set(held[g])
            has_hole = bool((cache.tables[0].holes[0] >= 0).any())
            if lost and not has_hole:
                one.evict(lost)
            gone[g] = lost if has_hole else set()
            one.fill(one.due(len(one.tokens)))
        start += count
        check(cache, slow)


def check(cache, slow: list[SlowHead]) -> None:
    total = cache.tables[0].held[0]
    keys, values = cache.memories[0].read(cache.evictor.past_of(0, int(total)))
    positions = cache.tables[0].positions[0, :, :total]
    for g, one in enumerate(slow):
        by_position = {p: (key, value) for p, key, value in one.tokens}
        tokens = [by_position[position] for position in positions[g].tolist()]
        for side, found in enumerate((keys, values)):
            expected = np.stack([token[side] for token in tokens])
            assert_close(found[0, g].double(), torch.from_numpy(expected), atol=SUM_ERROR)
        assert cache.memories[0]._pages[0][0].encoded == GROUP * len(one.groups)


def model_of(name: str, policy: str, **options):
    config = small_config(head_dim=WIDTH, max_position_embeddings=2048)
    entry = {CONFIG_KEY: KVScheme(KV_FORMATS[name]).config_entry()}
    return load_model(ArraySource(config | entry, random_weights(config)), RunOptions(policy=policy), **options)


WIDE = {"window": "window:600", "fastgen": "fastgen:target=1"}
NAMES = [name for name in policy_names() if name not in ("full", "sinks", "oracle", "quest", "infllm")]
OTHERS = pytest.mark.exhaustive("some policies of each kind are in every run")
OFTEN = ("h2o", "adakv", "window")


@pytest.mark.parametrize("kv", ["kv-kivi-4", "kv-int4-kc"])
@pytest.mark.parametrize("name", [name if name in OFTEN else pytest.param(name, marks=OTHERS) for name in NAMES])
def test_a_budget_above_the_context_changes_no_bit(name: str, kv: str) -> None:
    text = WIDE.get(name, f"{name}:budget=600")
    model, full = (model_of(kv, policy, impl="reference") for policy in (text, "full"))
    tokens = torch.randint(150, (2, 220), generator=torch.Generator().manual_seed(1))
    one, other = model.new_cache(2), full.new_cache(2)
    for part in tokens.split((170, 1, 1, 30, 18), 1):
        assert torch.equal(model(part, one), full(part, other))


def test_sinks_that_hold_the_context_read_the_same_as_the_full_cache() -> None:
    model, full = (model_of("kv-kivi-4", policy, impl="reference") for policy in ("sinks:4+600", "full"))
    tokens = torch.randint(150, (2, 220), generator=torch.Generator().manual_seed(1))
    one, other = model.new_cache(2), full.new_cache(2)
    for part in tokens.split((170, 1, 1, 30, 18), 1):
        # Rotations differ in their last bit, so that a code now and then is the next one.
        assert relative_rms(model(part, one), full(part, other)) < 2.0**-11


@pytest.mark.parametrize("policy", ["h2o:190", "snapkv:190", "window:190", "sinks:4+186", "adakv:190,window=8"])
def test_a_batch_of_unlike_lengths_gets_the_results_of_separate_sequences(policy: str) -> None:
    tokens = torch.randint(150, (2, 320), generator=torch.Generator().manual_seed(2))
    assert_a_batch_is_its_sequences(model_of("kv-kivi-4", policy), tokens, ([250, 7], [1, 1], [5, 60], [1, 1]))


@pytest.mark.parametrize("policy", ["h2o:190", "sinks:4+186"])
def test_a_marked_length_comes_back(policy: str) -> None:
    model = model_of("kv-kivi-2", policy)
    tokens = torch.randint(150, (1, 320), generator=torch.Generator().manual_seed(3))
    cache = model.new_cache(1)
    model(tokens[:, :300], cache)
    cache.mark()
    first, second = [], []
    for found in (first, second):
        found += [model(token, cache) for token in tokens[:, 300:].split(1, 1)]
        cache.truncate(300)
    assert torch.equal(torch.cat(first), torch.cat(second))


@pytest.mark.parametrize("seed", range(4))
def test_only_groups_that_lose_tokens_are_filled(seed: int) -> None:
    make = torch.Generator().manual_seed(seed)
    stays = torch.ones(230, dtype=torch.bool)
    stays[torch.randint(230, (12,), generator=make)] = False
    order = order_of(stays, 96, 64, GROUP)
    assert sorted(order.tolist()) == torch.arange(230)[stays].tolist()
    lost = (~stays[:96]).view(3, GROUP).sum(1)
    for place, g in enumerate(lost.argsort(stable=True)[:2].sort().values.tolist()):
        now, before = order[place * GROUP : (place + 1) * GROUP], torch.arange(g * GROUP, (g + 1) * GROUP)
        assert (now == before)[stays[before]].all(), "only gaps are filled"
