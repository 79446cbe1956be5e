"""Pages and who holds them against a slow model of a pool; caches over pages against those that own their memory."""

from itertools import pairwise

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.caches import is_in_torch, random_tokens
from support.close import assert_close
from support.mixed_workload import AT_ONCE, LONGEST, run_mixed_workload
from support.pages import shuffled

from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from qbench.runtime.caches.kv_cache import pooled_cache
from qbench.runtime.caches.places.pages import OutOfPages, PagedSequence, PagePool
from qbench.runtime.caches.storage.kernel_storage import STORES
from quant.errors import InputError
from quant.extension import has_cpu_kernels
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig

CONFIG = small_config(head_dim=32)
MODEL = ModelConfig.from_hf(CONFIG)
PAGE = 16

needs_kernels = pytest.mark.skipif(not has_cpu_kernels(), reason="the C++ extension is not built")
PLAIN_FORMATS = [
    name for name in STORES if name is None or not (KV_FORMATS[name].calibrated or KV_FORMATS[name].residual)
]


def model_of(kv: str | None = None, impl: str = "auto", **options) -> Model:
    weights = random_weights(CONFIG)
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    formats = {name: "q8_0" for name, weight in weights.items() if weight.ndim == 2}
    return load_model(ArraySource(CONFIG | entry, weights, formats), RunOptions(**options), impl=impl)


def pool_of(model: Model, num_pages: int, page_size: int = PAGE) -> PagePool:
    return shuffled(PagePool(model.config, model.kv, num_pages, page_size, impl=model.impl))


# ---- references to pages


@settings(max_examples=60, stateful_step_count=40, deadline=None)
class Pool(RuleBasedStateMachine):
    """A pool and its sequences next to a slow model of them: the values that each sequence reads, as a list of numbers.

    The contents of pages are kept here, a dictionary of page -> written numbers, and copied when the pool copies.
    """

    NUM_PAGES = 7

    def __init__(self) -> None:
        super().__init__()
        self.pool = PagePool(MODEL, None, self.NUM_PAGES, PAGE, impl="reference")
        self.pool.memories = [self]
        self.written: dict[int, list[int | None]] = {page: [None] * PAGE for page in range(self.NUM_PAGES)}
        self.sequences: list[tuple[PagedSequence, list[int]]] = []
        self.clock = 0

    def pages_for(self, num_slots: int) -> int:
        return -(-num_slots // PAGE)

    def copy_page(self, source: int, target: int) -> None:
        self.written[target] = list(self.written[source])

    def pick(self, data: st.DataObject) -> tuple[PagedSequence, list[int]] | None:
        return data.draw(st.sampled_from(self.sequences)) if self.sequences else None

    @rule()
    def start(self) -> None:
        self.sequences.append((PagedSequence(self.pool), []))

    @rule(data=st.data(), count=st.integers(0, 40))
    def write(self, data: st.DataObject, count: int) -> None:
        if not self.sequences:
            return
        sequence, text = self.pick(data)
        before = list(sequence.pages), [self.pool.references(page) for page in range(self.NUM_PAGES)]
        try:
            sequence.reserve(count)
        except OutOfPages:
            after = list(sequence.pages), [self.pool.references(page) for page in range(self.NUM_PAGES)]
            assert after == before
            return
        for i in range(len(text), len(text) + count):
            page = sequence.pages[i // PAGE]
            assert self.pool.references(page) == 1, "a page that others hold would be written to"
            self.clock += 1
            self.written[page][i % PAGE] = self.clock
            text.append(self.clock)
        sequence.seq_len += count

    @rule(data=st.data(), ahead=st.integers(1, 20))
    def reserve_ahead(self, data: st.DataObject, ahead: int) -> None:
        if self.sequences:
            try:
                self.pick(data)[0].reserve(ahead)
            except OutOfPages:
                assert self.pool.num_free < 3, "one page to copy and at most two new ones"

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        if self.sequences:
            sequence, text = self.pick(data)
            self.sequences.append((sequence.fork(), list(text)))

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        if self.sequences:
            sequence, text = self.pick(data)
            seq_len = data.draw(st.integers(0, len(text)))
            sequence.truncate(seq_len)
            del text[seq_len:]

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        if self.sequences:
            index = data.draw(st.integers(0, len(self.sequences) - 1))
            sequence, _ = self.sequences.pop(index)
            sequence.release()

    @invariant()
    def references_are_who_holds_them(self) -> None:
        held = [page for sequence, _ in self.sequences for page in sequence.pages]
        for page in range(self.NUM_PAGES):
            assert self.pool.references(page) == held.count(page)
        assert self.pool.num_free == self.NUM_PAGES - len(set(held))

    @invariant()
    def each_reads_what_it_wrote(self) -> None:
        for sequence, text in self.sequences:
            assert sequence.seq_len == len(text) <= len(sequence.pages) * PAGE
            assert [self.written[sequence.pages[i // PAGE]][i % PAGE] for i in range(len(text))] == text


TestPool = Pool.TestCase


def test_unowned_pages_are_refused():
    pool = PagePool(MODEL, None, 2)
    page = pool.allocate()
    pool.release(page)
    for call in (pool.release, pool.retain, pool.copy):
        with pytest.raises(ValueError, match=f"page {page} is held by nobody"):
            call(page)
        with pytest.raises(ValueError, match="page -1 is held by nobody"):
            call(-1)


def test_all_pages_serve_a_sequence_after_others_left_holes():
    pool = PagePool(MODEL, None, 12)
    sequences = [PagedSequence(pool) for _ in range(6)]
    for sequence in sequences:
        sequence.reserve(2 * PAGE)
    for sequence in sequences[::2]:
        sequence.release()
    long = PagedSequence(pool)
    long.reserve(6 * PAGE)
    assert pool.num_free == 0
    with pytest.raises(OutOfPages, match="1 pages are needed, 0 are free"):
        long.reserve(6 * PAGE + 1)


@pytest.mark.parametrize("seed", range(3))
def test_pages_of_a_mixed_workload_waste_less_than_4_percent(seed):
    """Sequences of 64 to 2048 tokens that come and go: half of one page each is empty on average, 8 of a few
    hundred.
    """
    pool = PagePool(MODEL, None, AT_ONCE * LONGEST // PAGE, PAGE, impl="reference")
    usage = run_mixed_workload(pool, seed)
    assert 0 < usage.waste < 0.04 < usage.fixed_waste
    assert usage.num_sequences > 5 * AT_ONCE and pool.num_free == pool.num_pages


@pytest.mark.parametrize("num_pages, page_size", [(0, 16), (3, 0), (3, 24)])
def test_impossible_sizes(num_pages, page_size):
    with pytest.raises(InputError, match=f"{num_pages} pages of {page_size} tokens, expected"):
        PagePool(MODEL, None, num_pages, page_size)


def test_formats_that_encode_several_tokens_together():
    with pytest.raises(InputError, match="kv-int4-kc encodes several tokens together"):
        PagePool(MODEL, KVScheme(KV_FORMATS["kv-int4-kc"]), 3)


# ---- caches over pages


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", PLAIN_FORMATS)
@pytest.mark.parametrize("page_size", [16, 48])
def test_paged_matches_owned_memory_bit_for_bit(kv, page_size, impl):
    model, tokens = model_of(kv, impl=impl), random_tokens(3, 61)
    pool = pool_of(model, 20, page_size)
    paged = pooled_cache(pool, [PagedSequence(pool) for _ in range(3)])
    assert is_in_torch(paged) == (impl != "auto" or not has_cpu_kernels())
    own = model.new_cache(3, capacity=5)
    for part in tokens.split((40, 1, 1, 19), dim=1):
        assert_close(model(part, paged), model(part, own))
    paged.truncate(17)
    own.truncate(17)
    assert_close(model(tokens[:, :2], paged), model(tokens[:, :2], own))


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", PLAIN_FORMATS)
def test_a_page_that_is_saved_comes_back_elsewhere(kv, impl):
    model, tokens = model_of(kv, impl=impl), random_tokens(1, 45)
    pool = pool_of(model, 12)
    one, other = PagedSequence(pool), PagedSequence(pool)
    model(tokens[:, :40], pooled_cache(pool, [one]))
    pages, saved = list(one.pages), [pool.save(page) for page in one.pages]
    expected = model(tokens[:, 40:], pooled_cache(pool, [one]))
    one.release()
    model(random_tokens(1, 80, seed=1), pooled_cache(pool, [PagedSequence(pool)]))  # over the old contents
    other.reserve(40)
    assert not set(other.pages) & set(pages)
    for page, held in zip(other.pages, saved, strict=True):
        pool.load(page, held)
    other.seq_len = 40
    assert_close(model(tokens[:, 40:], pooled_cache(pool, [other])), expected)
    parts = [part for layer in saved[0] for part in (layer if isinstance(layer, list) else [layer])]
    assert sum(part.nbytes for part in parts) == pool.page_bytes


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", PLAIN_FORMATS)
def test_writing_after_a_fork_never_changes_the_sibling(kv, impl):
    model = model_of(kv, impl=impl)
    pool, first = pool_of(model, 12), None
    first = PagedSequence(pool)
    prompt, a, b = random_tokens(1, 37), random_tokens(1, 9, seed=1), random_tokens(1, 9, seed=2)
    model(prompt, pooled_cache(pool, [first]))
    second = first.fork()
    assert second.pages == first.pages and pool.num_free == 12 - 3
    outputs = []
    for start, end in pairwise((0, 4, 5, 9)):  # by turns, so that their writes alternate
        for sequence, text in ((first, a), (second, b)):
            outputs.append(model(text[:, start:end], pooled_cache(pool, [sequence])))
    assert pool.num_free == 12 - 4, "of 3 pages two are still shared"
    for text, got in ((a, outputs[::2]), (b, outputs[1::2])):
        cache = model.new_cache()
        model(prompt, cache)
        assert_close(torch.cat(got, 1), torch.cat([model(part, cache) for part in text.split((4, 1, 4), 1)], 1))


@needs_kernels
@pytest.mark.usefixtures("inputs_of_8_bits")  # of many tokens as of few
def test_sequences_come_and_go_between_passes():
    """Unlike prompts and single tokens in one pass, each bit for bit as alone, in pages that others used before."""
    model, pool = model_of("kv-f16"), None
    pool = pool_of(model, 9)
    texts = [random_tokens(1, 50, seed)[0] for seed in range(4)]
    alone = []
    for text in texts:
        cache = model.new_cache()
        alone.append(torch.cat([model(part[None], cache)[0] for part in text.split((20, 1, 19, 1, 9))]))
    old = PagedSequence(pool)
    model(texts[3][None, :40], pooled_cache(pool, [old]))
    old.release()
    live = {b: PagedSequence(pool) for b in range(3)}
    # sequence -> tokens of each pass: prompts next to single tokens, one that comes later and one that has left
    for step in ({0: 20, 1: 20}, {0: 1, 1: 1, 2: 20}, {1: 19, 2: 1}, {2: 19, 1: 1}, {2: 1}):
        tokens = torch.full((len(step), max(step.values())), -1)
        starts = {b: live[b].seq_len for b in step}
        for row, (b, count) in zip(tokens, step.items(), strict=True):
            row[:count] = texts[b][starts[b] : starts[b] + count]
        cache = pooled_cache(pool, [live[b] for b in step])
        logits = model(tokens, cache, num_valid=list(step.values()))
        for row, (b, count) in zip(logits, step.items(), strict=True):
            assert_close(row[:count], alone[b][starts[b] : starts[b] + count])
        assert [live[b].seq_len for b in step] == [starts[b] + count for b, count in step.items()]


@needs_kernels
def test_out_of_pages_is_reported_before_any_computation():
    model = model_of()
    pool = PagePool(model.config, None, 3)
    first, second = PagedSequence(pool), PagedSequence(pool)
    model(random_tokens(1, 30), pooled_cache(pool, [first]))
    cache = pooled_cache(pool, [second])
    with pytest.raises(OutOfPages, match="2 pages are needed, 1 are free"):
        model(random_tokens(1, 17), cache)
    assert (second.seq_len, second.pages, pool.num_free) == (0, [], 1)
    model(random_tokens(1, 16), cache)
    assert cache.size_bytes == pool.page_bytes


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", PLAIN_FORMATS)
def test_bytes_of_a_page(kv, impl):
    model = model_of(kv, impl=impl)
    pool = PagePool(model.config, model.kv, 5, 32, impl=impl)
    assert pool.page_bytes == 32 * model.new_cache(capacity=32).bytes_per_token
    assert pooled_cache(pool, [PagedSequence(pool)]).bytes_per_token * 32 == pool.page_bytes
