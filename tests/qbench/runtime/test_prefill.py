"""Prefill patterns in the runtime: all blocks are dense, each is its definition, and others are refused."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close
from support.encoder_decoders import small_t5
from support.memory_source import MemorySource

from qbench.run.cache_spec import CacheSpec
from qbench.run.choices import FLOAT32
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.cache_suits import check_source
from quant.errors import InputError
from quant.kv.source import KVSource

LAYERS, NUM_TOKENS = 2, 400


def tokens(batch: int = 2, num_tokens: int = NUM_TOKENS) -> torch.Tensor:
    return torch.randint(0, 320, (batch, num_tokens), generator=torch.Generator().manual_seed(0))


def source() -> MemorySource:
    return MemorySource(num_hidden_layers=LAYERS, max_position_embeddings=512)


def model_of(prefill: str, kv_format: str | None = None, attention: str | None = None, impl: str = "auto"):
    options = RunOptions(kv_format=kv_format, prefill=prefill, compute=FLOAT32, attention=attention)
    its = source() if kv_format is None else KVSource(source(), kv_format)
    return load_model(its, options, impl=impl)


def bound(expected: torch.Tensor) -> float:
    """Sums of so many keys round so often, in every layer, and errors of some tokens add up in others."""
    return 2**-24 * LAYERS * NUM_TOKENS * float(expected.abs().max())


@pytest.mark.parametrize("attention", [None, "kernel"])
@pytest.mark.parametrize("pattern", ["star:100%", "segment-state", "minference", "flexprefill:1", "xattention:1"])
def test_all_blocks_are_dense(pattern, attention):
    expected = model_of("dense", attention="kernel")(tokens())
    assert_close(model_of(pattern, attention=attention)(tokens()), expected, atol=bound(expected))


@pytest.mark.parametrize("pattern", ["star:128", "segment-state:128", "flexprefill:0.5,budget=128", "xattention:0.5"])
@pytest.mark.parametrize("kv_format", [None, "kv-f16", "kv-bf16", "kv-int8", "kv-fp8"])
def test_the_store_matches_torch(kv_format, pattern):
    expected = model_of(pattern, kv_format)(tokens())
    # Codes move to a neighbour if an encoded number differs in its last bit.
    step = {"kv-int8": 2**-7, "kv-fp8": 2**-4, "kv-f16": 2**-10, "kv-bf16": 2**-7}.get(kv_format, 0)
    found = model_of(pattern, kv_format, attention="kernel")(tokens())
    assert_close(found, expected, atol=bound(expected) + step * float(expected.abs().max()))


def test_the_pattern_changes_only_its_part():
    dense, star = (model_of(name)(tokens()) for name in ("dense", "star:128,query=0"))
    same = slice(0, 256)  # the first two parts see all
    assert_close(star[:, same], dense[:, same], atol=bound(dense))
    assert ((star[:, 256:] - dense[:, 256:]).abs().amax(2) > bound(dense)).float().mean() > 0.9


def test_later_tokens_see_all():
    model, dense = model_of("star:100%"), model_of("dense")
    cache, other = model.new_cache(2, 450), dense.new_cache(2, 450)
    for part in tokens(2, 420).split([400, 1, 7, 12], dim=1):
        expected = dense(part, other)
        assert_close(model(part, cache), expected, atol=bound(expected))


def test_a_padded_batch_gives_the_results_of_separate_sequences():
    model = model_of("star:128,query=0")
    together = model(tokens(), model.new_cache(2, 450), num_valid=[400, 150])
    for row, length in enumerate((400, 150)):
        alone = model(tokens()[row : row + 1, :length])
        assert_close(together[row, :length], alone[0], atol=bound(alone))


def test_share_and_mass_are_counted():
    model = model_of("star:128,query=0")
    model.prefill_tally.measures_mass = True
    model(tokens())
    tally = model.prefill_tally
    assert tally.count == 2 * LAYERS
    assert tally.mean_blocks == pytest.approx(7 / 10)  # 1 + 2 + 2 + 2 of 1 + 2 + 3 + 4
    assert 0.5 < tally.mean_mass < 1
    whole = model_of("star:100%")
    whole.prefill_tally.measures_mass = True
    whole(tokens())
    assert whole.prefill_tally.mean_blocks == 1
    assert whole.prefill_tally.mean_mass == pytest.approx(1, abs=2**-20)


@pytest.mark.parametrize(
    "kind, named",
    [("deepseek2", "latent attention"), ("bloom", "ALiBi"), ("gemma2", "capped scores"), ("gemma3", "window")],
)
def test_models_that_cannot_have_a_pattern_are_refused(kind, named):
    config = small_config(kind)
    its = ArraySource(config, random_weights(config))
    with pytest.raises(InputError, match=named):
        check_source(its, CacheSpec(prefill="star"))
    with pytest.raises(InputError, match=named):
        load_model(its, RunOptions(prefill="star"))


def test_encoder_decoders_are_refused():
    class Source:
        config, spec = small_t5(), "small"

    check_source(Source(), CacheSpec())
    with pytest.raises(InputError, match="encoder is not causal"):
        check_source(Source(), CacheSpec(prefill="star"))


def test_groups_of_encoded_tokens_are_refused():
    with pytest.raises(InputError, match="encodes several tokens together"):
        model_of("star", "kv-kivi-4")
