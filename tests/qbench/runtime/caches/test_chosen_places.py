"""InfLLM with its blocks on a disk: the same logits, and only chosen blocks that are not in memory are read."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.run.cache_spec import CacheSpec
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.places.block_tiers import BlockTiers
from qbench.runtime.caches.places.chosen_places import ChosenPlaces, page_size_of
from qbench.runtime.caches.storage.kernel_storage import KernelStorage
from qbench.runtime.tiers.read_ahead import ReadAhead
from qbench.runtime.tiers.spill_file import SpillFile
from quant.errors import InputError
from quant.kv.source import KVSource

CONTEXT, LAYERS = 1024, 3
POLICY = "infllm:budget=192,init=16,local=64,block=32,representatives=2"


def load(kv: str = "kv-f16", **options):
    config = small_config(num_hidden_layers=LAYERS, hidden_size=256, max_position_embeddings=CONTEXT)
    source = KVSource(ArraySource(config, random_weights(config)), kv)
    return load_model(source, RunOptions(compute="exact", policy=POLICY, **options))


def in_tiers(model, num_tokens: int, policy: str = POLICY):
    """A cache with the memory of so many tokens in all layers."""
    bytes_per_token = model.new_cache(1, 16, spec=CacheSpec()).bytes_per_token
    return model.new_cache(1, 800, spec=CacheSpec(policy=policy, kv_ram=round(num_tokens * bytes_per_token)))


@torch.inference_mode()
def logits(model, cache, tokens, num_steps: int = 40) -> torch.Tensor:
    """Return the logits of a prompt in chunks, and of single tokens after it."""
    first = tokens.shape[1] - num_steps
    parts = [model(tokens[:, at : min(at + 256, first)], cache) for at in range(0, first, 256)]
    for at in range(first, tokens.shape[1]):
        parts.append(model(tokens[:, at : at + 1], cache))
    return torch.cat(parts, 1)


def some_tokens(count: int = 640) -> torch.Tensor:
    return torch.randint(0, 64, (1, count), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(
    "kv, attention, policy",
    [
        ("kv-f16", "kernel", POLICY),
        ("kv-int8", "kernel", POLICY),
        ("f32", "textbook", POLICY),
        ("kv-f16", "kernel", f"{POLICY},smooth=0.5"),
    ],
)
def test_logits_match_blocks_in_memory(kv, attention, policy):
    model, tokens = load(kv, attention=attention), some_tokens()
    expected = logits(model, model.new_cache(1, 800, spec=CacheSpec(policy=policy)), tokens)
    cache = in_tiers(model, 340, policy)
    assert cache.size_bytes < model.new_cache(1, 16, spec=CacheSpec()).bytes_per_token * 800 / 2
    assert torch.equal(logits(model, cache, tokens), expected)
    reads = cache.tier_reads
    assert 0 < reads.hit_share < 1 and reads.bytes_read == reads.blocks_loaded * cache.memories[0].page_bytes
    cache.truncate(0)
    assert torch.equal(logits(model, cache, tokens), expected), "again in the same cache"


@pytest.fixture
def in_python(monkeypatch):
    """Blocks are brought without kernels, as on a system without several reads at once."""
    monkeypatch.setattr(BlockTiers, "choose_in_kernels", lambda self, *about: None)


@pytest.mark.parametrize("smooth", ["", ",smooth=0.5"])
def test_reads_ahead_change_no_bit_and_no_choice(smooth, monkeypatch, in_python):
    """Blocks that the last step makes likely are on their way while the next step begins."""
    model, tokens, taken = load(), some_tokens(), []
    take = ReadAhead.take

    def counted(ahead, slots):
        begun, rows = take(ahead, slots)
        taken.append(sum(begun))
        return begun, rows

    monkeypatch.setattr(ReadAhead, "take", counted)
    cache = in_tiers(model, 340, POLICY + smooth)
    ahead = logits(model, cache, tokens)
    tally, page_bytes = cache.places.tally, cache.memories[0].page_bytes
    expected, reads = (tally._step_loaded + tally._step_unused) / tally._steps, cache.tier_reads
    assert (reads.blocks_loaded, reads.bytes_read) == (expected, expected * page_bytes)
    can = cache.places.tiers.spill.read_ahead().most > 0
    assert (sum(taken) > 0) == can

    monkeypatch.setattr(ReadAhead, "begin", lambda self, slots: None)
    taken.clear()
    other = in_tiers(model, 340, POLICY + smooth)
    assert torch.equal(logits(model, other, tokens), ahead)
    assert sum(taken) == 0 and other.places.tally.num_loaded == tally.num_loaded


@pytest.mark.parametrize("smooth", ["", ",smooth=0.5"])
def test_kernels_bring_the_same_blocks(smooth, monkeypatch):
    """As Python does: the same logits, and the same blocks come from the disk; most of them were on their way."""
    model, tokens = load(), some_tokens()
    cache = in_tiers(model, 340, POLICY + smooth)
    kernels = cache.places.tiers.in_kernels
    if kernels is None:
        pytest.skip("this file system reads through the page cache")
    counts = np.zeros(3, dtype=int)

    def counted(self):
        its = kernels.take_counts()
        counts[:] += its
        self.tally.num_loaded += its[0]
        self.tally.num_unused += its[2]

    with monkeypatch.context() as patch:
        patch.setattr(BlockTiers, "count_in_kernels", counted)
        found = logits(model, cache, tokens)
    tally = cache.places.tally
    assert 0 < counts[1] <= counts[0] <= tally.num_loaded, "loaded, expected, unused"

    monkeypatch.setattr(BlockTiers, "choose_in_kernels", lambda self, *about: None)
    other = in_tiers(model, 340, POLICY + smooth)
    assert torch.equal(logits(model, other, tokens), found)
    assert (other.places.tally.num_loaded, other.places.tally.num_asked) == (tally.num_loaded, tally.num_asked)
    assert (other.places.tiers.table == cache.places.tiers.table).all()


def test_a_block_that_is_written_again_is_not_taken_from_an_older_read(tmp_path):
    storage = KernelStorage(load("f32").config, None, 0, 4, 16)
    tiers = BlockTiers(storage, 1, 8, SpillFile(tmp_path, storage.page_bytes, 1 << 20), ranks_uses=False)

    def put(block: int, value: int) -> None:
        page = tiers.pin(0, np.array([block]))
        storage.fill_pages(page, np.full((1, storage.page_bytes), value, dtype=np.uint8))
        tiers.change(0, np.array([block]))
        tiers.unpin(0, np.array([block]))

    def bytes_of(block: int) -> set[int]:
        tiers.bring(0, np.array([block]))
        data = np.empty((1, storage.page_bytes), dtype=np.uint8)
        storage.dump_pages(tiers.table[0, [block]], data)
        return set(data.ravel().tolist())

    for block in range(6):  # the first two leave the memory of four
        put(block, block)
    tiers.forget(6)  # waits for the writes
    tiers.expect(np.array([0, 1]))
    assert bytes_of(0) == {0}
    put(1, 77)
    tiers.rank[0, 1] = -1  # makes room first
    put(6, 6)
    assert tiers.table[0, 1] < 0 and bytes_of(1) == {77}


@pytest.mark.parametrize("marked", [False, True])
def test_a_cache_that_goes_back_computes_the_same(marked):
    model, tokens = load(), some_tokens()
    caches = [model.new_cache(1, 800, spec=CacheSpec(policy=POLICY)), in_tiers(model, 340)]
    with torch.inference_mode():
        outs = []
        for cache in caches:
            model(tokens[:, :500], cache)
            if marked:
                cache.mark()
            its = []
            for back in (500, 500, 410):
                its += [model(tokens[:, at : at + 1], cache) for at in range(cache.seq_len, cache.seq_len + 70)]
                cache.truncate(back)
            outs.append(torch.cat(its, 1))
    assert torch.equal(*outs)


def test_all_blocks_in_memory_read_nothing():
    model, tokens = load(), some_tokens()
    cache = in_tiers(model, 800)
    logits(model, cache, tokens)
    assert cache.tier_reads.blocks_loaded == 0 and cache.tier_reads.hit_share == 1


def test_blocks_with_little_attention_make_room_first(tmp_path):
    storage = KernelStorage(load("f32").config, None, 0, 4, 16)
    tiers = BlockTiers(storage, 1, 8, SpillFile(tmp_path, storage.page_bytes, 1 << 20), ranks_uses=False)
    places = ChosenPlaces(storage, 1, tiers)
    places.reserve(0, 4 * 16)
    places.release([0], 0, 4)
    places.credit(0, np.array([0, 1, 2, 3]), np.array([5.0, 0.1, 3.0, 0.4]))
    places.bring(0, np.array([1]))
    places.credit(0, np.array([1]), np.array([0.25]))
    # A choice later the attention of the first one counts a tenth: 0.5, 0.26, 0.3 and 0.04.
    places.hold(0, 4, 5)
    assert np.flatnonzero(tiers.table[0, :4] < 0).tolist() == [3]
    places.hold(0, 5, 6)
    assert np.flatnonzero(tiers.table[0, :4] < 0).tolist() == [1, 3]


@pytest.mark.parametrize("policy", ["full", POLICY])
def test_a_share_is_that_of_the_whole_cache(policy):
    model = load()
    whole = model.new_cache(1, 800, spec=CacheSpec(policy=policy, kv_ram=1 << 40)).places.size_bytes
    spec = CacheSpec(policy=policy, kv_ram=0.5)
    assert model.new_cache(1, 800, spec=spec).places.size_bytes == pytest.approx(whole / 2, rel=0.05)
    assert model.new_cache(1, 800, spec=replace(spec, kv_ram=3.0)).places.size_bytes == whole
    assert [replace(spec, kv_ram=ram).ram_bytes(1000) for ram in (None, 0.25, 1, 300, 5000)] == [
        1000,
        250,
        1,
        300,
        1000,
    ]


def test_limits_name_the_smallest_that_suffice():
    model = load()
    with pytest.raises(InputError, match="give --kv-ram at least") as error:
        in_tiers(model, 100)
    least = int(str(error.value).partition("take ")[2].partition(";")[0])
    model.new_cache(1, 800, spec=CacheSpec(policy=POLICY, kv_ram=least))
    with pytest.raises(InputError, match="give --kv-ram at least"):
        model.new_cache(1, 800, spec=CacheSpec(policy=POLICY, kv_ram=least - 1))
    with pytest.raises(InputError, match="bytes of disk"):
        model.new_cache(1, 800, spec=CacheSpec(policy=POLICY, kv_ram=least, kv_disk=1 << 16))


def test_other_policies_are_refused():
    with pytest.raises(InputError, match="got quest:budget=512: its first layers read every page"):
        CacheSpec(policy="quest:budget=512", kv_ram=1 << 20)
    assert page_size_of(CacheSpec(policy=POLICY).make_policy()) == 16
