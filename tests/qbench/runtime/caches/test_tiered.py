"""A cache that does not fit into its memory: the same logits, and blocks that come from the disk."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from qbench.run.cache_spec import CacheSpec
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.caches.places.block_tiers import BlockTiers
from qbench.runtime.caches.places.tiered_places import TIER_TOKENS, num_tier_pages
from qbench.runtime.caches.storage.kernel_storage import KernelStorage
from qbench.runtime.tiers.spill_file import SpillFile
from quant.errors import InputError
from quant.kv.source import KVSource

CONTEXT = 512
FORMATS = ["f32", "kv-f16", "kv-bf16", "kv-fp8", "kv-fp8-tensor", "kv-int8", "kv-int4"]


def load(kv: str, **options):
    config = small_config(num_hidden_layers=6, hidden_size=256, max_position_embeddings=CONTEXT)
    source = KVSource(ArraySource(config, random_weights(config)), kv)
    return load_model(source, RunOptions(compute="exact", **options))


def page_bytes(model) -> int:
    cache = model.new_cache(1, 64, spec=CacheSpec(kv_ram=1 << 30))
    return cache.memories[0].page_bytes


@torch.inference_mode()
def logits(model, cache, tokens) -> torch.Tensor:
    """Logits of a prompt in two parts, then of single tokens."""
    parts = [model(tokens[:, :200], cache), model(tokens[:, 200:300], cache)]
    parts += [model(tokens[:, at : at + 1], cache) for at in range(300, 304)]
    return torch.cat(parts, 1)


@pytest.mark.parametrize(
    "kv, attention", [*((kv, "kernel") for kv in FORMATS), ("f32", "textbook"), ("kv-int4", "textbook")]
)
def test_logits_match_a_cache_in_memory(kv, attention):
    model = load(kv, attention=attention)
    tokens = torch.randint(0, 64, (1, 304), generator=torch.Generator().manual_seed(1))
    blocks = -(-304 // TIER_TOKENS)
    expected = logits(model, model.new_cache(1, 304, spec=CacheSpec("paged")), tokens)
    for num_blocks in (blocks, 4 * blocks):
        cache = model.new_cache(1, 304, spec=CacheSpec(kv_ram=num_blocks * page_bytes(model)))
        assert cache.size_bytes <= num_blocks * page_bytes(model)
        assert torch.equal(logits(model, cache, tokens), expected)
        tiers = cache.places.tiers
        assert tiers.tally.num_loaded > 0
        cache.truncate(0)
        assert torch.equal(logits(model, cache, tokens), expected), "again in the same cache"


def test_only_layers_that_do_not_stay_are_loaded():
    model, blocks = load("kv-f16"), -(-304 // TIER_TOKENS)
    cache = model.new_cache(1, 304, spec=CacheSpec(kv_ram=4 * blocks * page_bytes(model)))
    tokens = torch.zeros(1, 304, dtype=torch.int64)
    logits(model, cache, tokens)
    before, tiers = cache.places.tiers.tally.num_loaded, cache.places.tiers
    cache.truncate(303)
    with torch.inference_mode():
        for _ in range(4):
            model(tokens[:, :1], cache)
            cache.truncate(303)
    assert tiers.tally.num_loaded - before == 4 * 4 * blocks, "two of six layers stay, four are loaded in each pass"


def test_limits_name_the_smallest_that_suffice():
    least = 2 * 1000
    with pytest.raises(InputError, match=f"give at least {least}"):
        num_tier_pages(1000, 4, 100, least - 1, 1 << 30)
    assert num_tier_pages(1000, 4, 100, least, 8 * 4096) == 2
    with pytest.raises(InputError, match=f"give at least {8 * 4096}"):
        num_tier_pages(1000, 4, 100, least, 8 * 4096 - 1)
    assert num_tier_pages(1000, 4, 100, 1 << 30, 0) == 8


def test_a_spill_file_keeps_its_slots(tmp_path):
    spill = SpillFile(tmp_path, 5000, 3 * 8192)
    assert [spill.allocate() for _ in range(4)] == [0, 1, 2, None]
    data = [np.random.default_rng(slot).integers(0, 256, 5000, dtype=np.uint8) for slot in range(3)]
    for slot in (2, 0, 1):
        spill.write(slot, data[slot])
    assert all((spill.read(slot) == data[slot]).all() for slot in range(3))
    assert list(tmp_path.iterdir()) == [], "the file has no name"
    spill.release(1)
    assert spill.allocate() == 1
    with pytest.raises(InputError, match="cannot make a file"):
        SpillFile(tmp_path / "missing", 1, 4096)


def test_blocks_move_like_their_textbook_model(tmp_path):
    """Random pins, changes and prefetches; the bytes of each pinned block are those that were last written to it."""
    storage = KernelStorage(load("f32").config, None, 0, 5, 16)
    tiers = BlockTiers(storage, 4, 6, SpillFile(tmp_path, storage.page_bytes, 1 << 20))
    draw = np.random.default_rng(0)
    written: dict[tuple[int, int], np.ndarray] = {}
    out = np.empty(storage.page_bytes, dtype=np.uint8)
    for _ in range(400):
        layer, blocks = int(draw.integers(4)), np.sort(draw.choice(6, draw.integers(1, 5), replace=False))
        if draw.random() < 0.3:
            tiers.prefetch(layer, blocks)
            continue
        pages = tiers.pin(layer, blocks)
        assert len(set(pages.tolist())) == len(blocks)
        for block, page in zip([(layer, number) for number in blocks.tolist()], pages.tolist(), strict=True):
            if block in written:
                storage.dump_page(page, out)
                assert (out == written[block]).all()
            if block not in written or draw.random() < 0.3:
                tiers.change(layer, np.array([block[1]]))
                written[block] = draw.integers(0, 256, storage.page_bytes, dtype=np.uint8)
                storage.fill_page(page, written[block])
        tiers.unpin(layer, blocks)
    assert tiers.tally.num_loaded > 100 and tiers.num_spilled < tiers.tally.num_loaded
    with pytest.raises(InputError, match="raise --kv-ram"):
        tiers.pin(3, np.arange(6))


def test_neighbours_on_the_disk_are_read_at_once(tmp_path):
    spill = SpillFile(tmp_path, 5000, 1 << 20)
    spill.run_slots = 3
    tiers = BlockTiers(KernelStorage(load("f32").config, None, 0, 5, 16), 4, 6, spill)
    runs = tiers._runs(np.array([7, 2, 3, 4, 5, 11, 8]), np.arange(7))
    assert [(first, pages.tolist()) for first, pages in runs] == [(2, [1, 2, 3]), (5, [4]), (7, [0, 6]), (11, [5])]


@pytest.mark.parametrize(
    "options, named",
    [({"policy": "window:64"}, "--kv-ram goes with"), ({"cache": "paged"}, "--kv-ram goes with")],
    ids=["policy", "layout"],
)
def test_options_that_do_not_combine_are_refused(options, named):
    with pytest.raises(InputError, match=named):
        RunOptions(kv_ram=1 << 20, **options)


def test_a_disk_without_memory_to_extend_is_refused():
    with pytest.raises(InputError, match="--kv-disk 1048576 has no effect without --kv-ram"):
        RunOptions(kv_disk=1 << 20)
