"""KV formats that encode several tokens together, under continuous batching: the texts of `generate`."""

from functools import cache

import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.engine_runs import texts_alone, texts_together

from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from qbench.runtime.cache_suits import check_engine_source
from qbench.runtime.caches.storage.residual_storage import ResidualStorage
from qbench.runtime.caches.storage.slot_groups import SlotGroups
from qbench.runtime.engine import Engine, EngineOptions, Request
from qbench.runtime.text.sampling import Sampling
from quant.errors import InputError
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY

FORMATS = ["kv-kivi-2", "kv-kivi-4", "kv-int4-kc"]
SNAPKV = "snapkv:190,window=8"
EVICTING = ["window:190", "sinks:4+186", "h2o:190", "tova:185", SNAPKV, "knorm:180", "adakv:190,window=8"]
OTHERS = ["scissorhands:budget=190", "fastgen:target=0.6", "pyramidkv:budget=180,window=4", "keydiff:180", "random:180"]
LENGTHS, NUM_NEW = (250, 100, 110, 7), 24
PAGE, BATCH = 16, 3
MORE = pytest.mark.exhaustive("each policy and each format is in every run, if not all pairs")


@cache
def model_of(kv: str, policy: str = "full", prefill_chunk: int | None = None, kind: str = "llama") -> Model:
    latent = {"kv_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 32}
    sizes = latent if kind == "deepseek2" else {"head_dim": 32}
    config = small_config(kind, **sizes, max_position_embeddings=512)
    values = random_weights(config)
    formats = {name: "q8_0" for name, value in values.items() if value.ndim == 2}
    entry = {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    options = RunOptions(policy=policy, prefill_chunk=prefill_chunk, compute="exact")
    return load_model(ArraySource(config | entry, values, formats), options)


def requests(lengths: tuple[int, ...] = LENGTHS) -> list[Request]:
    prompts = [tuple((7 * i + 3 * n) % 150 + 1 for i in range(length)) for n, length in enumerate(lengths)]
    return [Request(tokens, Sampling(), NUM_NEW, stop_ids=()) for tokens in prompts]


def crowded(model: Model, preempt: str = "recompute") -> EngineOptions:
    """Room for the longest request, and for two prompts with a page to grow, but not for both texts."""
    one = model.page_pool(1, PAGE, BATCH)
    by_head = one.num_pages > 1  # then each head may fill its last page in part
    both = sum(map(one.pages_for, (250, 240) if one.num_rings else (100, 110))) + (3 if by_head else 1)
    num_pages = max(both, one.pages_for(max(LENGTHS) + NUM_NEW))
    return EngineOptions(num_pages=num_pages, max_batch=BATCH, prefill_chunk=24, preempt=preempt)


def assert_texts_of_generate(model: Model, options: EngineOptions) -> Engine:
    engine = Engine(model, options)
    asked = requests((250, 240, 7) if engine.pool.num_rings else LENGTHS)  # tokens in rings take no pages
    assert texts_together(engine, asked) == texts_alone(model, asked)
    assert engine.pool.num_free == engine.pool.num_pages
    assert engine.scheduler.tree is None, "no prefix is shared"
    return engine


PREEMPT = ("recompute", "swap")
OFTEN = [
    *((kv, "full", preempt) for kv in FORMATS for preempt in PREEMPT),
    *(("kv-kivi-4", policy, "swap") for policy in EVICTING if policy != "tova:185"),
    ("kv-kivi-2", "tova:185", "recompute"),
    ("kv-int4-kc", SNAPKV, "recompute"),
]
ALL = [(kv, policy, preempt) for kv in FORMATS for policy in EVICTING + OTHERS for preempt in PREEMPT]
SELDOM = [case for case in ALL if case not in OFTEN]


@pytest.mark.parametrize("kv, policy, preempt", [*OFTEN, *(pytest.param(*case, marks=MORE) for case in SELDOM)])
def test_no_schedule_changes_a_greedy_text(kv: str, policy: str, preempt: str) -> None:
    model = model_of(kv, policy)
    engine = assert_texts_of_generate(model, crowded(model, preempt))
    stats = engine.stats()
    assert stats.swapped_in == stats.swapped_out and stats.swap_pages == 0
    if (kv, policy, preempt) in OFTEN:  # other policies may leave room for both texts
        assert stats.preemptions > 0 and (stats.swapped_out > 0) == (preempt == "swap")


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("policy", ["full", pytest.param("tova:185", marks=MORE)])
def test_all_at_once_and_one_by_one(kv: str, policy: str) -> None:
    model = model_of(kv, policy)
    for batch, chunk in ((8, 256), (1, 8)):
        assert_texts_of_generate(model, EngineOptions(num_pages=400, max_batch=batch, prefill_chunk=chunk))


IN_CHUNKS = [("llama", "kv-kivi-4", "h2o:190"), ("llama", "kv-int4-kc", "full"), ("llama", "kv-kivi-2", "full")]
QWEN, GEMMA = ("qwen3moe", "kv-kivi-2", "full"), ("gemma3", "kv-kivi-4", "window")
DEEPSEEK = [("deepseek2", "kv-kivi-4", "full"), ("deepseek2", "kv-int4-kc", "h2o:190")]


@pytest.mark.parametrize("kind, kv, policy", [*IN_CHUNKS, QWEN, GEMMA, *DEEPSEEK])
def test_prompts_in_chunks_and_other_architectures(kind: str, kv: str, policy: str) -> None:
    model = model_of(kv, policy, prefill_chunk=64 if kind == "llama" else None, kind=kind)
    assert_texts_of_generate(model, crowded(model))


def bytes_in_groups(engine: Engine) -> int:
    return sum(memory.size_bytes for memory in engine.pool.memories)


@pytest.mark.parametrize("kv", FORMATS)
@pytest.mark.parametrize("policy", ["h2o:190", "snapkv:190,window=8", "sinks:4+186", "adakv:190,window=8"])
def test_pages_count_the_bytes_that_are_held(kv: str, policy: str) -> None:
    """Floats of recent tokens, codes and scales, after every step; no byte is left when all requests are over."""
    engine = Engine(model_of(kv, policy), EngineOptions(num_pages=400, max_batch=BATCH))
    assert isinstance(engine.pool.memories[0], SlotGroups)
    for request in requests():
        engine.submit(request)
    most = 0
    while engine.has_work:
        engine.step()
        taken = (engine.pool.num_pages - engine.pool.num_free) * engine.pool.page_bytes
        assert bytes_in_groups(engine) <= taken
        most = max(most, taken)
    assert most > 0 and bytes_in_groups(engine) == 0 and not engine.pool.memories[0]._pages


def test_recent_tokens_are_apart_from_the_pages_of_encoded_ones() -> None:
    """A prompt of 250 tokens has 96 that are encoded, in 6 pages."""
    engine = Engine(model_of("kv-kivi-4"), EngineOptions(num_pages=50, max_batch=BATCH))
    storage = engine.pool.memories[0]
    assert isinstance(storage, ResidualStorage) and storage.num_rings == BATCH
    engine.submit(requests()[0])
    engine.step()
    assert engine.pool.num_pages - engine.pool.num_free == 6
    fmt, ring_tokens = KV_FORMATS["kv-kivi-4"], 128 + 32
    assert engine.pool.page_bytes == 2 * PAGE * fmt.bytes_per_token(2, 32)
    assert engine.pool.ring_bytes == 2 * ring_tokens * fmt.float_bytes_per_token(2, 32)
    assert BATCH * engine.pool.ring_bytes + 50 * engine.pool.page_bytes == bytes_in_groups(engine)


def test_memory_holds_rings_and_pages() -> None:
    model = model_of("kv-kivi-2")
    one = model.page_pool(1, PAGE, BATCH)
    memory = BATCH * one.ring_bytes + 10 * one.page_bytes
    engine = Engine(model, EngineOptions(memory_bytes=memory, max_batch=BATCH))
    assert engine.pool.num_pages == 10 and bytes_in_groups(engine) == memory
    with pytest.raises(
        InputError, match=f"but a page takes {one.page_bytes} and the recent tokens of {BATCH} requests"
    ):
        Engine(model, EngineOptions(memory_bytes=BATCH * one.ring_bytes, max_batch=BATCH))


@pytest.mark.parametrize("kv", FORMATS)
def test_pages_do_not_leave_the_memory_of_an_engine(kv: str) -> None:
    config = small_config(head_dim=32) | {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    for option in ("--kv-store", "--swap-disk", "--instances"):
        with pytest.raises(InputError, match=f"{kv} encodes several tokens together, .* leave out {option}"):
            check_engine_source(ArraySource(config, {}), RunOptions(), {option: True})
    check_engine_source(ArraySource(config, {}), RunOptions(policy="h2o:190"), {"--kv-store": False})
