"""Predicted bytes of caches against those that are made."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import ONE_OF_EACH, spec_of

from qbench.runtime import load_model
from qbench.runtime.caches.kinds import MAX_CHUNK_TOKENS
from qbench.runtime.memory import MemoryPredictor
from quant.errors import InputError
from quant.kv import KV_FORMATS, KVScheme
from quant.kv.scheme import CONFIG_KEY


def source(architecture: str = "llama", kv: str | None = None) -> ArraySource:
    config = small_config(architecture, head_dim=32, max_position_embeddings=1024)
    entry = {} if kv is None else {CONFIG_KEY: KVScheme(KV_FORMATS[kv]).config_entry()}
    return ArraySource(config | entry, random_weights(config))


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kv", [None, "kv-f16", "kv-int8"])
@pytest.mark.parametrize("architecture", ["llama", "deepseek2"])
@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_bytes_match_the_cache(kind, architecture, kv, impl):
    model_source = source(architecture, kv)
    model = load_model(model_source, impl=impl)
    cache = model.new_cache(2, 131, spec=spec_of(kind))
    model(torch.zeros(2, 131, dtype=torch.int64), cache, last_only=True)  # buffers that the first token makes are there
    predicted = MemoryPredictor(model_source, impl=impl, spec=spec_of(kind)).at(131, 2)
    # A window's pages are all there from the beginning, whatever its sequences hold of them.
    pool = cache.places.pool if kind == "window:300" else None
    held = cache.size_bytes if pool is None else pool.num_pages * pool.page_bytes
    assert predicted.kv_bytes == held


def test_a_window_bounds_the_bytes_of_a_context():
    windowed = MemoryPredictor(source(), spec=spec_of("window:64"))
    assert windowed.at(1024).kv_bytes == windowed.at(512).kv_bytes < MemoryPredictor(source()).at(1024).kv_bytes
    assert windowed.cache.tokens_per_forward(1024, None) == MAX_CHUNK_TOKENS


def test_without_a_cache_every_pass_is_the_whole_context():
    none = MemoryPredictor(source(), spec=spec_of("none"))
    assert none.at(512, prefill=16) == none.at(512) and none.at(512).kv_bytes == 0


def test_bad_input():
    with pytest.raises(InputError, match="attend to all tokens"):
        MemoryPredictor(source(), spec=spec_of("window"))
    with pytest.raises(InputError, match="needs at least 65 tokens"):
        MemoryPredictor(source(), spec=spec_of("snapkv:budget=64"))
