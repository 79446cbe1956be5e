"""Quest in a cache against a loop over queries, heads and pages."""

import numpy as np
import pytest
import torch
from support import retrieval
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import attended
from support.close import assert_close
from support.retrieval import config_of, heads, heads_of_equal_keys, scheme_of

from qbench.calibration.open_subject import open_subject
from qbench.policies import parse_policy
from qbench.run.cache_spec import CacheSpec
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.cache_maker import CacheMaker
from qbench.runtime.caches.kinds import plan_cache
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.caches.rules import Asked
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig

PAGE = 16


def slow_quest(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, num_prompt: int, num_pages: int, scale: float
) -> tuple[np.ndarray, list[list[int]]]:
    """Outputs of the query heads of one KV head, and the pages that each query reads.

    The queries of the prompt read everything. Heads of a group share their pages, by the sum of their bounds.

    q        [H / G, T, D]; k, v [T, D]
    returns  out [H / G, T, D] float64, and per query its pages in text order
    """
    out, read = np.zeros(q.shape), []
    for t in range(q.shape[1]):
        own = t // PAGE
        pages = list(range(own + 1))
        if t >= num_prompt and len(pages) > num_pages:
            bounds = [page_bound(q[:, t], k[page * PAGE : (page + 1) * PAGE]) for page in range(own)]
            best = sorted(range(own), key=lambda page: (-bounds[page], page))[: num_pages - 1]
            pages = [*sorted(best), own]
        seen = [s for page in pages for s in range(page * PAGE, min((page + 1) * PAGE, t + 1))]
        for h in range(len(q)):
            scores = scale * (k[seen] @ q[h, t])
            weights = np.exp(scores - scores.max())
            out[h, t] = weights / weights.sum() @ v[seen]
        read.append(pages)
    return out, read


def page_bound(queries: np.ndarray, keys: np.ndarray) -> float:
    """queries [H / G, D], keys [PAGE, D] -> the sum over heads and channels; minima and maxima are float16"""
    low, high = (bound.astype(np.float16).astype(np.float64) for bound in (keys.min(0), keys.max(0)))
    return sum(max(query[i] * low[i], query[i] * high[i]) for query in queries for i in range(len(low)))


NEEDS_KERNELS = pytest.mark.skipif(not has_cpu_kernels(), reason="cpu_kernels are not compiled")
IMPL = pytest.mark.parametrize("impl", ["reference", pytest.param("auto", marks=NEEDS_KERNELS)])
QUEST = "quest:budget=64,dense=0"
INFLLM = "infllm:budget=140,init=16,local=24,block=32"
NUM_PAGES = 4
# A weight changes by 2 * (D + 2) * eps * max |score| at most, and scores stay below 2**6.
TOLERANCE = 2 * (32 + 2) * 2.0**-24 * 2**6 * 4


def cache_of(config: ModelConfig, impl: str, batch: int = 1, text: str = QUEST, kv: str | None = None):
    return CacheMaker(config, scheme_of(kv), impl).new(CacheSpec(policy=text), batch, 64)


@IMPL
@pytest.mark.parametrize("passes", [(150, *(1,) * 20), (150, 20), (40, 3, 127)], ids=["decode", "chunk", "chunks"])
def test_quest_is_its_paper_written_as_a_loop(impl: str, passes: tuple[int, ...]) -> None:
    config = config_of(head_dim=32)
    q, k, v = heads(config, sum(passes), seed=3)
    out = attended(cache_of(config, impl), q, k, v, passes)
    group = config.num_heads // config.num_kv_heads
    choices = set()
    for g in range(config.num_kv_heads):
        its = slice(g * group, (g + 1) * group)
        arrays = (x.double().numpy() for x in (q[0, its], k[0, g], v[0, g]))
        expected, read = slow_quest(*arrays, passes[0], NUM_PAGES, config.head_dim**-0.5)
        assert_close(out[0, its], torch.from_numpy(expected).float(), atol=TOLERANCE)
        choices.add(tuple(map(tuple, read)))
    assert len(choices) == config.num_kv_heads, "KV heads choose by themselves"


@IMPL
@pytest.mark.parametrize("kv", [None, "kv-f16", "kv-fp8", "kv-fp8-tensor", "kv-int8", "kv-int4"])
def test_a_pass_of_several_tokens_chooses_as_a_pass_for_each(impl: str, kv: str | None) -> None:
    config = config_of(head_dim=32)
    q, k, v = heads(config, 230, batch=2, seed=3)
    one, other = (cache_of(config, impl, 2, kv=kv) for _ in range(2))
    together, alone = (attended(cache, q, k, v, (200, *cuts)) for cache, cuts in ((one, (30,)), (other, (1,) * 30)))
    assert torch.equal(together, alone)
    assert one.tokens_read is None
    assert other.tokens_read == np.mean([48 + t % 16 + 1 for t in range(200, 230)])


@IMPL
def test_equal_pages_are_chosen_from_the_front(impl: str) -> None:
    config = config_of(head_dim=32)
    tensors = heads_of_equal_keys(config, 161, 1.0, seed=3)
    out = attended(cache_of(config, impl), *tensors, (160, 1))
    expected = (sum(range(48)) + 160) / 49  # pages 0, 1, 2 and the query's own
    assert_close(out[:, :, -1], torch.full_like(out[:, :, -1], expected), atol=160 * 49 * 2.0**-24)


@IMPL
def test_a_cache_that_goes_back_chooses_the_same_again(impl: str) -> None:
    config = config_of(head_dim=32)
    q, k, v = heads(config, 200, seed=3)
    cache = cache_of(config, impl)
    first = attended(cache, q, k, v, (150, *(1,) * 50))
    cache.truncate(150)
    again = attended(cache, *(x[:, :, 150:] for x in (q, k, v)), (1,) * 50)
    assert torch.equal(first[:, :, 150:], again)


@IMPL
def test_a_batch_of_unlike_lengths_gets_the_results_of_separate_sequences(impl: str) -> None:
    retrieval.assert_a_batch_of_unlike_lengths("quest:budget=48,dense=1", impl)


@IMPL
def test_layers_with_a_window_of_their_own_keep_it(impl: str) -> None:
    retrieval.assert_it_reads_all("mistral", QUEST, impl, (290, 1, 1, 8))


@IMPL
@pytest.mark.parametrize("kv", [None, "kv-f16", "kv-int8"])
def test_planned_bytes_match_the_held_ones(impl: str, kv: str | None) -> None:
    config = config_of(head_dim=32)
    cache = cache_of(config, impl, 2, kv=kv)
    memory = plan_cache(Asked(config, scheme_of(kv), CacheSpec(policy=QUEST), impl=impl))
    room, used = retrieval.assert_planned_bytes_are_held(
        cache, memory, lambda layer, *qkv: cache.attend(layer, *qkv, torch.arange(160))
    )
    assert room < 2 * used


def test_models_and_formats_that_cannot_be_read_in_part_are_refused() -> None:
    with pytest.raises(InputError, match="keeps latents; use policy full"):
        cache_of(config_of("deepseek2"), "auto")
    with pytest.raises(InputError, match="ALiBi"):
        cache_of(config_of("bloom"), "auto")
    config = small_config("llama", head_dim=32)
    model = load_model(ArraySource(config, random_weights(config)), RunOptions(policy=QUEST))
    with pytest.raises(InputError, match="which the engine does not do"):
        model.pooled_caches(PagePool(model.config, None, 8), 64)
    with pytest.raises(InputError, match="encodes several tokens together"):
        cache_of(config_of(head_dim=32), "auto", kv="kv-kivi-4")
    with pytest.raises(InputError, match="keeps latents; use policy full"):  # before it is quantized
        open_subject("rand:deepseek-v3", RunOptions(recipe="q4_k_m", policy=QUEST))
    with pytest.raises(InputError, match="needs cache dynamic"):
        CacheSpec("paged", QUEST)
    with pytest.raises(InputError, match="dense is -1"):
        parse_policy("quest:dense=-1")


@NEEDS_KERNELS
@pytest.mark.parametrize("kv", [None, "kv-f16", "kv-int8"])
@pytest.mark.parametrize("policy", ["quest:budget=48,dense=1", INFLLM, f"{INFLLM},smooth=0.5"])
def test_one_call_over_all_layers_has_the_bits_of_python(policy: str, kv: str | None) -> None:
    config = small_config("llama", head_dim=32, max_position_embeddings=2048)
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    source = ArraySource(config | entry, random_weights(config))
    model, alone = (load_model(source, RunOptions(policy=policy), path=path) for path in ("auto", "python"))
    tokens = torch.randint(150, (1, 250), generator=torch.Generator().manual_seed(3))
    one, other = model.new_cache(), alone.new_cache()
    for part in tokens.split((200, *(1,) * 50), 1):
        assert torch.equal(model(part, one), alone(part, other))
        one.begin(part[:, :1])
        assert model.paths.choose(one, 1)[0].name == "layers"
    assert one.tokens_read == other.tokens_read
