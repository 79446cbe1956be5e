"""The implementations of attention that users choose: they agree, the chosen one runs, and others are refused."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.close import assert_close
from support.encoder_decoders import small_t5
from support.memory_source import MemorySource
from torch.profiler import ProfilerActivity, profile

from qbench.run.cache_spec import DEFAULT_CACHE
from qbench.run.choices import FLOAT32, KERNEL, SDPA, TEXTBOOK
from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.cache_suits import check_source
from quant.errors import InputError
from quant.kv.source import KVSource

CHOICES = (TEXTBOOK, SDPA, KERNEL)
NUM_TOKENS, LAYERS = 180, 2  # more than KIVI keeps as floats


def source(**changes) -> MemorySource:
    return MemorySource(num_hidden_layers=LAYERS, **changes)


def source_of(kind: str) -> ArraySource:
    config = small_config(kind)
    return ArraySource(config, random_weights(config))


def tokens(batch: int = 2) -> torch.Tensor:
    return torch.randint(0, 320, (batch, NUM_TOKENS), generator=torch.Generator().manual_seed(0))


def logits(attention: str | None, of: MemorySource, chunk: int | None = None, **options) -> torch.Tensor:
    """Logits of a text that nothing follows; with a chunk, over a cache and in parts of so many tokens."""
    kv_format = options.get("kv_format")
    of = of if kv_format is None else KVSource(of, kv_format)
    model = load_model(of, RunOptions(attention=attention, compute=FLOAT32, **options))
    if chunk is None:
        return model(tokens())
    cache = model.new_cache(2, NUM_TOKENS)
    return torch.cat([model(part, cache) for part in tokens().split(chunk, dim=1)], dim=1)


def bound(expected: torch.Tensor) -> float:
    """Sums of so many keys round so often, in every layer, and errors of some tokens add up in others."""
    return 2**-24 * LAYERS * NUM_TOKENS * float(expected.abs().max())


@pytest.mark.parametrize("chunk", [None, 90, 1])
def test_all_agree(chunk):
    expected = logits(TEXTBOOK, source(), chunk)
    for attention in (SDPA, KERNEL):
        assert_close(logits(attention, source(), chunk), expected, atol=bound(expected))


# Half a step of the format, of a group's largest number: some codes move to their neighbour.
STEPS = {"kv-f16": 2**-11, "kv-int8": 2**-8, "kv-fp8": 2**-4, "kv-kivi-4": 2**-5}


@pytest.mark.parametrize("chunk", [None, 90])
@pytest.mark.parametrize("kv_format", STEPS)
def test_all_read_the_same_codes(kv_format, chunk):
    expected = logits(TEXTBOOK, source(), chunk, kv_format=kv_format)
    for attention in (SDPA, KERNEL):
        got = logits(attention, source(), chunk, kv_format=kv_format)
        assert (got - expected).norm() / expected.norm() < STEPS[kv_format], attention


@pytest.mark.parametrize("attention", CHOICES)
@pytest.mark.parametrize("policy", ["window:20", "recent:budget=40", "keydiff:budget=40"])
def test_policies_that_read_no_weights(attention, policy):
    of, options = source(), {"policy": policy, "prefill_chunk": 30}
    expected = logits(TEXTBOOK, of, 30, **options)
    assert_close(logits(attention, of, 30, **options), expected, atol=bound(expected))


def test_a_policy_that_reads_weights_has_the_kernels_or_textbook_attention():
    options = {"policy": "h2o:budget=40", "prefill_chunk": 30}
    expected = logits(TEXTBOOK, source(), 30, **options)
    assert_close(logits(KERNEL, source(), 30, **options), expected, atol=bound(expected))


def calls(attention: str | None, chunk: int | None, **options) -> set[str]:
    with profile(activities=[ProfilerActivity.CPU]) as found:
        logits(attention, source(), chunk, **options)
    return {event.key for event in found.key_averages()}


ALSO_PAGED = [{}, {"cache": "paged"}, {"kv_format": "kv-int8"}, {"kv_format": "kv-kivi-4"}, {"policy": "window:20"}]


@pytest.mark.parametrize("options", ALSO_PAGED, ids=str)
@pytest.mark.parametrize("chunk", [None, 179])  # then one token
def test_the_chosen_one_runs(chunk, options):
    """A softmax of torch is there in textbook attention alone, and torch's SDPA in attention sdpa alone."""
    softmax, sdpa = "aten::softmax", "aten::scaled_dot_product_attention"
    for attention, expected in ((TEXTBOOK, {softmax}), (SDPA, {sdpa}), (KERNEL, set())):
        found = calls(attention, chunk, **options)
        assert found & {softmax, sdpa} == expected, attention
        assert "aten::mm" in found or "aten::linear" in found  # the profile saw the products


def test_a_model_attends_otherwise_with_the_same_weights():
    model = load_model(source(), RunOptions(attention=KERNEL, compute=FLOAT32))
    other = model.attending(TEXTBOOK)
    assert other.attention == TEXTBOOK and model.attention == KERNEL and other.blocks is model.blocks
    assert torch.equal(other(tokens()), logits(TEXTBOOK, source()))
    assert torch.equal(other.attending(KERNEL)(tokens()), model(tokens()))


@pytest.mark.parametrize(
    ("kind", "attention", "message"),
    [
        ("bloom", SDPA, "has ALiBi, which attention sdpa cannot compute; choose textbook"),
        ("bloom", KERNEL, "has ALiBi, which attention kernel"),
        ("gemma2", SDPA, "has capped scores, which attention sdpa"),
        ("deepseek2", TEXTBOOK, "has latent attention.*`qbench mla`"),
    ],
)
def test_models_without_a_choice_are_refused(kind, attention, message):
    with pytest.raises(InputError, match=message):
        check_source(source_of(kind), DEFAULT_CACHE, attention)


def test_an_encoder_decoder_has_no_choice():
    class Source:
        spec, config = "t5", small_t5()

    check_source(Source(), DEFAULT_CACHE, None)
    with pytest.raises(InputError, match="t5 is an encoder-decoder, which has one attention alone; got attention sdpa"):
        check_source(Source(), DEFAULT_CACHE, SDPA)


@pytest.mark.parametrize("kind", ["bloom", "gemma2"])
def test_textbook_attention_has_every_rule(kind):
    of = source_of(kind)
    ids = torch.randint(0, 160, (1, 60), generator=torch.Generator().manual_seed(0))
    models = [load_model(of, RunOptions(attention=name, compute=FLOAT32)) for name in (None, TEXTBOOK)]
    expected, got = (model(ids) for model in models)
    assert_close(got, expected, atol=bound(expected))


def test_a_format_without_a_store_is_refused_before_tensors_are_read():
    of = source(kv_cache={"format": "kv-int4-kc"})
    of.read = None
    with pytest.raises(InputError, match="attention kernel does not read kv-int4-kc with heads of 32"):
        load_model(of, RunOptions(attention=KERNEL))
