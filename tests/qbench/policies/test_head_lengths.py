"""Policies whose heads keep different numbers of tokens, against loops over queries that write the papers down."""

import math
from dataclasses import replace

import pytest
import torch
from support.architectures import small_config
from support.array_source import ArraySource
from support.caches import policy_cache
from support.close import assert_close
from support.slow_policy import Choose, slow_heads

from qbench.policies import TokenKinds
from qbench.policies.fastgen import FREQUENT, FULL, LOCAL, PUNCTUATION, SPECIAL
from qbench.runtime.caches.policy.policy_cache import PolicyCache
from qbench.runtime.caches.storage.head_storage import HeadStorage
from qbench.runtime.caches.storage.kv_storage import BLOCK_TOKENS, KVStorage
from qbench.runtime.caches.storage.storages import make_storage
from quant.extension import has_cpu_kernels
from quant.models import ModelConfig

NEEDS_KERNELS = pytest.mark.skipif(not has_cpu_kernels(), reason="cpu_kernels are not compiled")
IN = pytest.mark.parametrize("in_kernels", [False, pytest.param(True, marks=NEEDS_KERNELS)], ids=["torch", "kernels"])
PASSES = [(40, 1, 1, 1, 1, 1, 7, 1, 1, 1), (9, 9, 9, 9), (1,) * 20]
TOLERANCE = 1e-5  # float32 sums of 56 weights, in another order
HEADS, KV_HEADS, WIDTH = 10, 5, 32
TOKEN_BYTES = 2 * WIDTH * 4  # one head's key and value
SHARP = 60  # length of vectors whose products decide between neighbouring tokens
KINDS = TokenKinds(special=torch.tensor([1]), punctuation=torch.tensor([2, 3]))


def config_of() -> ModelConfig:
    changes = {"num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": WIDTH}
    return ModelConfig.of(ArraySource(small_config("llama", max_position_embeddings=2048, **changes), {}))


def cache_of(text: str, batch: int = 1, *, in_kernels: bool = False) -> PolicyCache:
    config = config_of()

    def storage_of_head() -> KVStorage:
        return make_storage(replace(config, num_kv_heads=1), None, 0, 1, BLOCK_TOKENS, in_kernels=in_kernels)

    storages = [
        HeadStorage([[storage_of_head() for _ in range(KV_HEADS)] for _ in range(batch)])
        for _ in range(config.num_layers)
    ]
    cache = policy_cache(config, text, batch, storages=storages)
    cache.evictor.token_kinds = KINDS
    return cache


def heads(total: int, sharpness: float = 2.0, batch: int = 1) -> list[torch.Tensor]:
    make = torch.Generator().manual_seed(total)
    return [
        torch.randn(batch, count, total, WIDTH, generator=make) * sharpness for count in (HEADS, KV_HEADS, KV_HEADS)
    ]


def some_tokens(total: int, batch: int = 1) -> torch.Tensor:
    """A special token at the beginning, and punctuation among others."""
    tokens = torch.randint(2, 12, (batch, total), generator=torch.Generator().manual_seed(total))
    tokens[:, 0] = 1
    return tokens


def attended(cache: PolicyCache, tokens, q, k, v, passes) -> torch.Tensor:
    """Layer 0's outputs of all tokens."""
    out, start = [], 0
    for count in passes:
        some = slice(start, start + count)
        step = cache.begin(tokens[:, some])
        out.append(cache.attend(0, q[:, :, some], k[:, :, some], v[:, :, some], step.positions))
        cache.advance(count)
        start += count
    return torch.cat(out, 2)


def slow(q, k, v, passes, choose) -> tuple[torch.Tensor, list[list[int]]]:
    arrays = (x[0].double().numpy() for x in (q.unflatten(1, (KV_HEADS, -1)), k, v))
    out, held = slow_heads(*arrays, passes, cache_of("full").rules[0].scale, choose)
    return torch.from_numpy(out).flatten(0, 1).float(), held


def ada(budget: int, window: int, kernel: int, alpha: float):
    """Ada-KV: (score, head, position) of all heads in one list, after each head was given its share."""

    def choose(held, observed, seen, prompt, is_prefill) -> list[list[int]]:
        if not is_prefill or sum(map(len, held)) <= KV_HEADS * budget:
            return held
        kept, rest = [], []
        for g, positions in enumerate(held):
            recent = [s for s in positions if s >= seen - window]
            before = [s for s in positions if s < seen - window]
            sums = [sum(mass.get(s, 0) for mass in observed[g][-window:]) for s in before]
            padded = [*[0] * (kernel // 2), *sums, *[0] * (kernel // 2)]
            pooled = {s: sum(padded[i : i + kernel]) / kernel for i, s in enumerate(before)}
            ranked = sorted(before, key=lambda s, pooled=pooled: -pooled[s])
            safe = max(0, int(alpha * budget) - len(recent))
            kept.append([*recent, *ranked[:safe]])
            rest += [(pooled[s], g, s) for s in ranked[safe:]]
        for _, g, s in sorted(rest, reverse=True)[: KV_HEADS * budget - sum(map(len, kept))]:
            kept[g].append(s)
        return kept

    return choose


class Gen:
    """FastGen, one head."""

    def __init__(self, tokens: list[int], target: float, frequent: float, local: float) -> None:
        self.tokens, self.target, self.frequent, self.local = tokens, target, frequent, local
        self.sums: dict[int, float] = {}
        self.rule = FULL

    def __call__(self, held, observed, seen, prompt, is_prefill) -> list[int]:
        for mass in observed:
            for s, weight in mass.items():
                self.sums[s] = self.sums.get(s, 0) + weight
        width = max(1, math.floor(self.local * seen))
        special = {s for s in held if self.tokens[s] == 1}
        punctuation = special | {s for s in held if self.tokens[s] in (2, 3)}
        most = sorted(held, key=lambda s: -self.sums[s])[: max(1, math.floor(self.frequent * seen))]
        kept = {SPECIAL: special, PUNCTUATION: punctuation, FREQUENT: punctuation | set(most)}
        if is_prefill:
            self.rule = FULL
            for rule in (LOCAL, FREQUENT, PUNCTUATION, SPECIAL):
                share = 0.0
                for t, mass in enumerate(observed, start=seen - len(observed)):
                    near = range(t - width + 1, t + 1) if rule == LOCAL else ()
                    columns = kept[min(rule, FREQUENT)]
                    share += sum(weight for s, weight in mass.items() if s in columns or s in near)
                if share / len(observed) / (HEADS // KV_HEADS) >= self.target:
                    self.rule = rule
        if self.rule == FULL:
            return held
        recent = {s for s in held if s >= seen - width} if self.rule == LOCAL else set()
        return [s for s in held if s in kept[min(self.rule, FREQUENT)] | recent]


def each_head(chooses: list[Choose]):
    def choose(held, observed, *facts) -> list[list[int]]:
        return [one(*given, *facts) for one, *given in zip(chooses, held, observed, strict=True)]

    return choose


@IN
@pytest.mark.parametrize("passes", PASSES, ids=["mixed", "chunks", "decode"])
@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.7, 1.0])
def test_adakv_is_its_paper_written_as_a_loop(alpha: float, passes: tuple[int, ...], in_kernels: bool) -> None:
    given = heads(sum(passes))
    cache = cache_of(f"adakv:budget=12,window=4,kernel=3,alpha={alpha}", in_kernels=in_kernels)
    out = attended(cache, some_tokens(sum(passes)), *given, passes)
    expected, positions = slow(*given, passes, ada(12, 4, 3, alpha))
    assert cache.held_positions(0) == [positions]
    assert_close(out[0], expected, atol=TOLERANCE)


@IN
@pytest.mark.parametrize("passes", PASSES, ids=["mixed", "chunks", "decode"])
@pytest.mark.parametrize("target", [0.05, 0.3, 0.5, 0.7, 0.9])
def test_fastgen_is_its_paper_written_as_a_loop(target: float, passes: tuple[int, ...], in_kernels: bool) -> None:
    given, tokens = heads(sum(passes)), some_tokens(sum(passes))
    cache = cache_of(f"fastgen:target={target},frequent=0.2,local=0.3", in_kernels=in_kernels)
    out = attended(cache, tokens, *given, passes)
    rules = [Gen(tokens[0].tolist(), target, 0.2, 0.3) for _ in range(KV_HEADS)]
    expected, positions = slow(*given, passes, each_head(rules))
    assert cache.held_positions(0) == [positions]
    assert_close(out[0], expected, atol=TOLERANCE)


def heads_of_every_kind(tokens: torch.Tensor) -> list[torch.Tensor]:
    """Queries that attend to special tokens, punctuation, one word, the last tokens, and tokens 40 places before."""
    total = tokens.shape[1]
    key, query, value = torch.randn(3, 1, KV_HEADS, total, WIDTH, generator=torch.Generator().manual_seed(1))
    query = query / 3  # so that no two sums of weights are equal
    wanted = [tokens == 1, (tokens == 2) | (tokens == 3) | (tokens == 1), (tokens == 5) | (tokens == 1)]
    for g, mask in enumerate(wanted):
        key[0, g, :, 0] = 20 * mask[0]
        query[0, g, :, 0] = 10
    angle = torch.arange(total) * (math.pi / total)  # a key has the largest product with the query of the same angle
    for g, distance in ((3, 0), (4, 40)):
        wanted_angle = (angle - angle[distance]).clamp(min=0)
        key[0, g, :, :2] = SHARP * torch.stack((angle.cos(), angle.sin()), 1)
        query[0, g, :, :2] = SHARP * torch.stack((wanted_angle.cos(), wanted_angle.sin()), 1)
    return [query.repeat_interleave(HEADS // KV_HEADS, 1), key, value]


def test_fastgen_gives_each_head_the_cheapest_rule_and_goes_on_by_it() -> None:
    tokens = some_tokens(130)
    given, passes = heads_of_every_kind(tokens), (100, *(1,) * 30)
    cache = cache_of("fastgen")
    out = attended(cache, tokens, *given, passes)
    rules = [Gen(tokens[0].tolist(), 0.9, 0.3, 0.3) for _ in range(KV_HEADS)]
    expected, positions = slow(*given, passes, each_head(rules))
    assert [one.rule for one in rules] == [SPECIAL, PUNCTUATION, FREQUENT, LOCAL, FULL]
    assert cache.held_positions(0) == [positions]
    # A score of SHARP**2 / sqrt(WIDTH) is off by 2**-23 of it, and a mean of values up to 4 by so much of them.
    assert_close(out[0], expected, atol=4 * 2**-23 * SHARP**2 / WIDTH**0.5)
    lengths = list(map(len, positions))
    assert lengths == sorted(lengths) and lengths[0] == 1 and lengths[-1] == 130


@IN
@pytest.mark.parametrize("text", ["fastgen", "adakv:budget=25%,window=8"])
def test_bytes_follow_the_mean_length_and_not_the_longest(text: str, in_kernels: bool) -> None:
    tokens = some_tokens(430)
    given = heads_of_every_kind(tokens)
    cache = cache_of(text, in_kernels=in_kernels)
    attended(cache, tokens, *given, (400, *(1,) * 30))
    lengths = [len(head) for head in cache.held_positions(0)[0]]
    held = cache.memories[0].size_bytes
    assert sum(lengths) * TOKEN_BYTES <= held <= sum(length + BLOCK_TOKENS for length in lengths) * TOKEN_BYTES
    assert held < 0.7 * KV_HEADS * max(lengths) * TOKEN_BYTES
    assert cache.peak_bytes >= KV_HEADS * 400 * TOKEN_BYTES


@IN
@pytest.mark.parametrize("text", ["fastgen:target=0.4", "adakv:12,window=4"])
def test_going_back_to_a_mark(text: str, in_kernels: bool) -> None:
    tokens, given = some_tokens(60), heads(60)
    cache = cache_of(text, in_kernels=in_kernels)
    attended(cache, tokens[:, :30], *(x[:, :, :30] for x in given), (30,))
    cache.mark()
    rest = [tokens[:, 30:], *(x[:, :, 30:] for x in given)]
    first = attended(cache, *rest, (1,) * 20)
    cache.truncate(30)
    assert torch.equal(attended(cache, *rest, (1,) * 20), first)
    held, lengths = cache.held_positions(0), cache.memories[0].size_bytes
    cache.truncate(0)
    attended(cache, tokens, *given, (30, *(1,) * 20))
    assert (cache.held_positions(0), cache.memories[0].size_bytes) == (held, lengths)
