"""Tokens at positions that the caller gives: as if earlier tokens there had never been."""

import numpy as np
import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.cache_specs import spec_of
from support.caches import random_tokens
from support.close import assert_close
from support.transformers_model import transformers_model
from transformers import DynamicCache

from qbench.runtime import Model, load_model
from quant.errors import InputError

KINDS = ("none", "dynamic", "static", "window:50", "paged")


def source_of(architecture: str = "llama") -> ArraySource:
    config = small_config(architecture, **({} if architecture == "deepseek2" else {"head_dim": 32}))
    return ArraySource(config, random_weights(config))


def after(model: Model, kind: str, *parts: torch.Tensor) -> torch.Tensor:
    """Logits of the last part behind the others."""
    cache = model.new_cache(len(parts[0]), 64, spec=spec_of(kind))
    return [model(part, cache) for part in parts][-1]


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("architecture", ["llama", "deepseek2"])
def test_a_draft_that_is_not_taken(architecture, kind, impl):
    model, tokens, other = (
        load_model(source_of(architecture), impl=impl),
        random_tokens(2, 30),
        random_tokens(2, 9, seed=1),
    )
    cache = model.new_cache(2, 64, spec=spec_of(kind))
    model(tokens[:, :20], cache)
    model(tokens[:, 20:], cache, cache_position=range(20, 30))
    got = model(other, cache, cache_position=torch.arange(20, 29))
    assert_close(got, after(model, kind, tokens[:, :20], other))
    assert cache.seq_lens.tolist() == [29, 29]
    got = model(other[:, :1], cache, cache_position=[0])
    assert_close(got, after(model, kind, other[:, :1]))


@pytest.mark.parametrize("impl", ["auto", "reference"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_sequence_has_its_own_position(kind, impl):
    model, tokens, other = load_model(source_of(), impl=impl), random_tokens(3, 20), random_tokens(3, 6, seed=1)
    starts, counts = [20, 7, 0], [2, 6, 1]
    positions = np.full((3, 6), -1000)  # of padding: not looked at
    for row, start, count in zip(positions, starts, counts, strict=True):
        row[:count] = range(start, start + count)
    cache = model.new_cache(3, 64, spec=spec_of(kind))
    model(tokens, cache)
    got = model(other, cache, num_valid=counts, cache_position=positions)
    assert cache.seq_lens.tolist() == [22, 13, 1]
    again = model(other[:, :1], cache)
    for b, (start, count) in enumerate(zip(starts, counts, strict=True)):
        text = torch.cat((tokens[b : b + 1, :start], other[b : b + 1, :count], other[b : b + 1, :1]), 1)
        expected = model(text)[0, start:]
        assert_close(torch.cat((got[b, :count], again[b])), expected, atol=1e-4)


def test_positions_of_a_cropped_cache_match_transformers(tmp_path):
    source, tokens, other = source_of(), random_tokens(1, 20), random_tokens(1, 5, seed=1)
    peer, past = transformers_model(source.config, random_weights(source.config), tmp_path), DynamicCache()
    model = load_model(source)
    cache = model.new_cache()
    model(tokens, cache)
    with torch.inference_mode():
        peer(tokens, past_key_values=past)
        past.crop(12 - 20)
        expected = peer(other, past_key_values=past, position_ids=torch.arange(12, 17)[None]).logits
    assert_close(model(other, cache, cache_position=torch.arange(12, 17)), expected, atol=1e-4)


def test_padding_on_the_left():
    model, tokens = load_model(source_of()), random_tokens(2, 8)
    cache = model.new_cache(2)
    cache.pad_left([3, 0])
    got = model(tokens, cache, cache_position=[[-3, -2, -1, 0, 1, 2, 3, 4], list(range(8))])
    assert_close(got[0, 3:], model(tokens[:1, 3:])[0], atol=1e-4)
    assert_close(got[1], model(tokens[1:])[0], atol=1e-4)


def test_without_a_cache_they_begin_at_0():
    model, tokens = load_model(source_of()), random_tokens(2, 8)
    assert_close(model(tokens, cache_position=range(8)), model(tokens))
    with pytest.raises(InputError, match="which holds 0 tokens; expected one after another, from 0 to 0 on"):
        model(tokens, cache_position=range(1, 9))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "positions, message",
    [
        ([11, 12, 13], "cache_position .11, 12, 13. of sequence 0, which holds 10 tokens; .* from 0 to 10 on"),
        ([8, 10, 11], "of sequence 0, which holds 10 tokens; expected one after another"),
        ([8, 8, 9], "expected one after another"),
        ([-1, 0, 1], "expected one after another, from 0 to 10 on"),
        ([[8, 9, 10], [11, 12, 13]], "of sequence 1"),
        ([8, 9], r"cache_position of int64 .2., expected whole numbers .3. or .2, 3."),
        ([8.0, 9.0, 10.0], "cache_position of float64"),
    ],
)
def test_impossible_positions_are_refused(kind, positions, message):
    model, tokens = load_model(source_of()), random_tokens(2, 10)
    cache = model.new_cache(2, 64, spec=spec_of(kind))
    model(tokens, cache)
    with pytest.raises(InputError, match=message):
        model(tokens[:, :3], cache, cache_position=positions)
    assert cache.seq_lens.tolist() == [10, 10]
    got = model(tokens[:, :3], cache)
    assert_close(got, after(model, kind, tokens, tokens[:, :3]))


@pytest.mark.parametrize("kind", ["dynamic", "static"])
def test_a_pass_that_there_is_no_room_for_forgets_nothing(kind):
    model = load_model(source_of())
    limit = 50 if kind == "static" else model.config.max_positions
    tokens = random_tokens(1, limit)
    cache = model.new_cache(1, 50, spec=spec_of(kind))
    model(tokens[:, :-2], cache)
    with pytest.raises(InputError, match=f"{limit + 1} tokens, but the"):
        model(tokens[:, :5], cache, cache_position=range(limit - 4, limit + 1))
    assert cache.seq_len == limit - 2


def test_a_window_cannot_go_back_to_lost_tokens():
    config = small_config(head_dim=32, max_position_embeddings=1024)
    model = load_model(ArraySource(config, random_weights(config)))
    cache, tokens = model.new_cache(1, spec=spec_of("window:20")), random_tokens(1, 800)
    model(tokens, cache, last_only=True)
    with pytest.raises(InputError, match=r"truncate to 100, whose window begins at token 81, .* are gone"):
        model(tokens[:, :1], cache, cache_position=[100])
    assert cache.seq_len == 800
    other = model.new_cache(1, spec=spec_of("window:20"))
    model(tokens[:, :790], other, last_only=True)
    assert_close(model(tokens[:, :5], cache, cache_position=range(790, 795)), model(tokens[:, :5], other))
