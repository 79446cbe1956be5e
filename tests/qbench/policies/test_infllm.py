"""InfLLM in a cache against a loop over tokens, heads and blocks."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from support import retrieval
from support.close import assert_close
from support.retrieval import config_of, heads, heads_of_equal_keys, scheme_of

from qbench.policies import parse_policy
from qbench.run.cache_spec import CacheSpec
from qbench.runtime.attention.rope import inverse_frequencies
from qbench.runtime.attention.rotations import Rotations
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.kinds import plan_cache
from qbench.runtime.caches.policy.distant_cache import DistantCache
from qbench.runtime.caches.rules import Asked
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.models import ModelConfig
from quant.present import present


@dataclass
class SlowInfLLM:
    """The context memory of one layer. Heads of a group share their keys, and a representative is a float16 mean.

    frequency   radians per position of each rotary pair
    num_blocks  distant blocks that a forward pass reads
    """

    init: int
    local: int
    block: int
    representatives: int
    num_blocks: int
    frequency: np.ndarray
    smooth: float = 0.0
    keys: list[np.ndarray] = field(default_factory=list)  # [G, D] per token, without rotation
    placed: list[np.ndarray] = field(default_factory=list)  # the keys at their places in the text
    values: list[np.ndarray] = field(default_factory=list)
    received: list[np.ndarray] = field(default_factory=list)  # [G] per token
    means: list[np.ndarray] = field(default_factory=list)  # [G, D] per distant block
    scores: list[float] = field(default_factory=list)  # of the last forward pass
    read: list[list[int]] = field(default_factory=list)  # blocks of each forward pass

    def turned(self, x: np.ndarray, position: int) -> np.ndarray:
        half = len(x) // 2
        cos, sin = np.cos(position * self.frequency), np.sin(position * self.frequency)
        return np.concatenate((x[:half] * cos - x[half:] * sin, x[half:] * cos + x[:half] * sin))

    def first_local(self) -> int:
        return self.init + len(self.means) * self.block if self.means else 0

    def forward(self, q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float) -> np.ndarray:
        """q [H, T, D], k, v [G, T, D] without rotation -> out [H, T, D]"""
        start, (num_heads, num_new, _) = len(self.keys), q.shape
        self.keys += list(k.swapaxes(0, 1))
        self.placed += [np.array([self.turned(key, start + t) for key in k[:, t]]) for t in range(num_new)]
        self.values += list(v.swapaxes(0, 1))
        self.received += [np.zeros(len(k)) for _ in range(num_new)]
        first, group = self.first_local(), num_heads // len(k)
        starts = [self.init + b * self.block for b in self.choose(q, group)]
        far = list(range(self.init)) if self.means else []
        far += [s for begin in starts for s in range(begin, begin + self.block)]
        out = np.zeros(q.shape)
        for t in range(num_new):
            near = list(range(first, start + t + 1))
            for h in range(num_heads):
                g = h // group
                at_end, here = self.turned(q[h, t], self.local - 1), self.turned(q[h, t], start + t)
                scores = [scale * at_end @ self.keys[s][g] for s in far]
                scores += [scale * here @ self.placed[s][g] for s in near]
                weights = np.exp(np.array(scores) - max(scores))
                weights /= weights.sum()
                for weight, s in zip(weights, far + near, strict=True):
                    out[h, t] += weight * self.values[s][g]
                    self.received[s][g] += weight * (s >= first)
        self.move()
        return out

    def choose(self, q: np.ndarray, group: int) -> list[int]:
        scores = [0.0] * len(self.means)
        for b, mean in enumerate(self.means):
            for h in range(len(q)):
                meets = [self.turned(query, self.local - 1) @ mean[h // group] for query in q[h]]
                scores[b] += float(np.mean(meets))
        if self.smooth and q.shape[1] == 1:
            for b, last in enumerate(self.scores):
                scores[b] = self.smooth * last + (1 - self.smooth) * scores[b]
        self.scores = scores
        best = sorted(range(len(scores)), key=lambda b: (-scores[b], b))[: self.num_blocks]
        self.read.append(sorted(best))
        return self.read[-1]

    def move(self) -> None:
        """Blocks that no longer hold one of the last tokens become distant."""
        while len(self.keys) - self.init - (len(self.means) + 1) * self.block >= self.local:
            start = self.init + len(self.means) * self.block
            tokens, mean = range(start, start + self.block), []
            for g in range(len(self.keys[0])):
                best = sorted(tokens, key=lambda s: (-self.received[s][g], s))[: self.representatives]
                mean.append(np.mean([self.keys[s][g] for s in best], 0).astype(np.float16).astype(np.float64))
            self.means.append(np.array(mean))


NEEDS_KERNELS = pytest.mark.skipif(not has_cpu_kernels(), reason="cpu_kernels are not compiled")
IMPL = pytest.mark.parametrize("impl", ["reference", pytest.param("auto", marks=NEEDS_KERNELS)])
SIZES = {"init": 16, "local": 24, "block": 32, "representatives": 3}
TEXT = "infllm:budget=140,init=16,local=24,block=32,representatives=3,queries=512"  # 2 blocks
PASSES = [((160, *(1,) * 24), 0.75), ((20, 33, 100, 40, 30), 0.0), ((120, *(1,) * 10, 50, 1), 0.5)]
# A weight changes by 2 * (D + 2) * eps * max |score| at most, and scores stay below 2**6; keys are turned twice.
TOLERANCE = 3 * 2 * (32 + 2) * 2.0**-24 * 2**6 * 4


def cache_of(config: ModelConfig, impl: str, batch: int = 1, text: str = TEXT, kv: str | None = None) -> DistantCache:
    cache = CacheMaker(config, scheme_of(kv), impl).new(CacheSpec(policy=text), batch, 64)
    assert isinstance(cache, DistantCache)
    return cache


def attended(cache: DistantCache, config: ModelConfig, tensors, passes) -> torch.Tensor:
    """Attention of layer 0, [B, H, T, D], to q, k and v of tokens that follow the cached ones"""
    outs, start, held = [], 0, cache.seq_len
    for count in passes:
        q, k, v = (x[:, :, start : start + count] for x in tensors)
        step = cache.begin(torch.zeros(len(q), count, dtype=torch.int64))
        rope = present(Rotations(config)(held + start, held + start + count)[0])
        outs.append(cache.rope_attend(0, q, k, v, rope, step.positions))
        cache.advance(count)
        start += count
    return torch.cat(outs, 2)


@IMPL
@pytest.mark.parametrize(("passes", "smooth"), PASSES, ids=["decode", "chunks", "mixed"])
def test_infllm_is_its_paper_written_as_a_loop(impl: str, passes: tuple[int, ...], smooth: float) -> None:
    config = config_of(head_dim=32)
    tensors = heads(config, sum(passes), seed=5)
    cache = cache_of(config, impl, text=f"{TEXT},smooth={smooth:g}")
    out = attended(cache, config, tensors, passes)
    frequency = inverse_frequencies(config.rope, config.rope_dim).double().numpy()
    slow, start, expected = SlowInfLLM(**SIZES, num_blocks=2, frequency=frequency, smooth=smooth), 0, []
    for count in passes:
        q, k, v = (x[0, :, start : start + count].double().numpy() for x in tensors)
        expected.append(slow.forward(q, k, v, config.attention_rule(0).scale))
        start += count
    assert_close(out[0], torch.from_numpy(np.concatenate(expected, 1)).float(), atol=TOLERANCE)
    assert len({tuple(blocks) for blocks in slow.read}) > 2, "passes choose by themselves"


@IMPL
def test_queries_that_choose_by_themselves_read_the_same_as_decode_steps(impl: str) -> None:
    config = config_of(head_dim=32)
    tensors = heads(config, 230, seed=5)
    text = TEXT.replace("queries=512", "queries=1")
    together, alone = (
        attended(cache_of(config, impl, text=text), config, tensors, (200, *cuts)) for cuts in ((7,), (1,) * 7)
    )
    assert_close(together, alone, atol=TOLERANCE)  # no block moves on the way


@IMPL
@pytest.mark.parametrize("kv", ["kv-f16", "kv-fp8", "kv-int8", "kv-int4"])
def test_other_formats_differ_by_their_rounding(impl: str, kv: str) -> None:
    config = config_of(head_dim=32)
    tensors, passes = heads(config, 230, seed=5), (200, *(1,) * 30)
    exact, rounded = (attended(cache_of(config, impl, kv=name), config, tensors, passes) for name in (None, kv))
    # Before blocks are distant, so that the choice is the same. Codes are apart by `step` of the largest of 32 numbers.
    step = {"kv-f16": 2.0**-11, "kv-fp8": 2.0**-4, "kv-int8": 2.0**-8, "kv-int4": 2.0**-4}[kv]
    first = slice(0, 80)
    assert_close(rounded[:, :, first], exact[:, :, first], atol=step * 2 * 4 * 4)
    assert torch.isfinite(rounded).all()


@IMPL
def test_equal_blocks_are_chosen_from_the_front(impl: str) -> None:
    config = config_of(head_dim=32)
    tensors = heads_of_equal_keys(config, 241, 0.0, seed=5)
    out = attended(cache_of(config, impl), config, tensors, (240, 1))
    read = [*range(16), *range(16, 80), *range(208, 241)]  # init, blocks 0 and 1, local tokens
    expected = sum(read) / len(read)
    assert_close(out[:, :, -1], torch.full_like(out[:, :, -1], expected), atol=240 * len(read) * 2.0**-24)


@IMPL
def test_a_cache_that_goes_back_to_its_mark_chooses_the_same_again(impl: str) -> None:
    config = config_of(head_dim=32)
    tensors = heads(config, 210, seed=5)
    cache = cache_of(config, impl, text=f"{TEXT},smooth=0.5", kv="kv-f16")
    attended(cache, config, [x[:, :, :150] for x in tensors], (150,))
    cache.mark()
    later = [x[:, :, 150:] for x in tensors]
    for _ in range(2):
        first = attended(cache, config, later, (1,) * 60)
        cache.truncate(150)
        assert torch.equal(first, attended(cache, config, later, (1,) * 60))
        cache.truncate(150)


@IMPL
def test_a_cache_without_a_mark_goes_back_to_the_same_keys(impl: str) -> None:
    config = config_of(head_dim=32)
    tensors = heads(config, 210, seed=5)
    far, near = (cache_of(config, impl) for _ in range(2))
    attended(far, config, tensors, (150, 60))
    far.truncate(60)
    attended(near, config, [x[:, :, :60] for x in tensors], (60,))
    held = [cache.memories[0].read(cache._pages(0, 0, 0, 48)) for cache in (far, near)]
    for side in (0, 1):  # turned back and forth, each entry by a sum of two products
        assert_close(held[0][side], held[1][side], atol=4 * 4 * 2.0**-23 * 4)
    assert far.indices[0][0].num_blocks == 0


@IMPL
def test_a_short_text_is_that_of_the_full_cache(impl: str) -> None:
    retrieval.assert_it_reads_all("llama", TEXT, impl, (60, 1, 1, 8))


@IMPL
def test_a_batch_of_unlike_lengths_gets_the_results_of_separate_sequences(impl: str) -> None:
    retrieval.assert_a_batch_of_unlike_lengths(TEXT, impl)


@IMPL
@pytest.mark.parametrize("kv", [None, "kv-f16", "kv-int8"])
def test_planned_bytes_match_the_held_ones(impl: str, kv: str | None) -> None:
    config = config_of(head_dim=32)
    cache = cache_of(config, impl, 2, kv=kv)
    rope = present(Rotations(config)(0, 160)[0])
    memory = plan_cache(Asked(config, scheme_of(kv), CacheSpec(policy=TEXT), impl=impl))
    room, used = retrieval.assert_planned_bytes_are_held(
        cache, memory, lambda layer, *qkv: cache.rope_attend(layer, *qkv, rope, torch.arange(160))
    )
    assert room <= 2 * used


def test_tokens_read_match_its_pages() -> None:
    config = config_of(head_dim=32)
    cache = cache_of(config, "reference")
    attended(cache, config, heads(config, 250, seed=5), (220, *(1,) * 30))
    assert cache.tokens_read == np.mean([16 + 64 + t - 16 - (t - 40) // 32 * 32 + 1 for t in range(220, 250)])
    assert cache.tokens_read <= 140


def test_models_and_options_that_do_not_go_together_are_refused() -> None:
    with pytest.raises(InputError, match="keeps latents; use policy full"):
        cache_of(config_of("deepseek2"), "auto")
    with pytest.raises(InputError, match="no rotary positions, which policy infllm changes"):
        cache_of(config_of("gpt2"), "auto")
    with pytest.raises(InputError, match="expected at least 143 tokens"):
        parse_policy("infllm:budget=100,init=16,local=64,block=32")
    with pytest.raises(InputError, match="expected multiples of 16"):
        parse_policy("infllm:block=100")
    with pytest.raises(InputError, match="smooth is 1"):
        parse_policy("infllm:smooth=1")
