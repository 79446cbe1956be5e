"""Sequence parallel: lanes that keep the KV cache of different tokens, against one rank."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.thread_ranks import model_on, run_ranks

from qbench.calibration.open_subject import open_subject
from qbench.run.cache_spec import PAGED, STATIC, CacheSpec
from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankLayout
from qbench.runtime import load_model
from qbench.runtime.caches.storage.kernel_storage import Run, share_runs
from qbench.runtime.caches.storage.share import SHARE_TOKENS, Share
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.parallel.traffic import expected_traffic
from quant.errors import InputError
from quant.kv import KVScheme
from quant.kv.formats import KV_FORMATS
from quant.models import ModelConfig

CONTEXT, PROMPT, NUM_STEPS = 3 * SHARE_TOKENS + 40, 3 * SHARE_TOKENS + 9, 3  # the third block of either lane begins
THREE = pytest.param(RankLayout(sp=3), marks=pytest.mark.exhaustive("as two lanes"))
CALIBRATED = {name for name, fmt in KV_FORMATS.items() if fmt.calibrated}


def logits(model) -> torch.Tensor:
    """[n, V] of a prompt in two parts, then of single tokens, then of the same after going back"""
    tokens = torch.randint(model.config.vocab_size, (2, CONTEXT), generator=torch.Generator().manual_seed(5))
    cache = model.new_cache(batch=2, capacity=CONTEXT)
    rows = [model(tokens[:, :30], cache), model(tokens[:, 30:PROMPT], cache)]
    cache.mark()
    for _ in range(2):
        rows += [model(tokens[:, at : at + 1], cache) for at in range(PROMPT, PROMPT + NUM_STEPS)]
        cache.truncate(PROMPT)
    return torch.cat(rows, 1)


def on_ranks(source, layout, work=logits, impl="auto") -> list:
    return run_ranks(layout, lambda ranks: work(model_on(ranks, source, impl)))


def opened(spec, kv=None, recipe=None):
    return open_subject(spec, RunOptions(recipe, kv_format=kv, threads=1)).source


def close(found, source, impl="auto", num_terms=512) -> None:
    """Within the roundings of a softmax over `num_terms` keys whose sums have another order, in each of 4 layers"""
    expected = logits(load_model(source, RunOptions(threads=1), impl=impl))
    tolerance = 2**-24 * num_terms**0.5 * 16 * expected.abs().max()
    assert (found - expected).abs().max() <= tolerance


def test_tokens_go_to_the_lanes_in_turn():
    lanes = [Share(lane, 3) for lane in range(3)]
    for seq_len in (0, 1, 64, 65, 300, 577):
        held = [lane.positions(seq_len) for lane in lanes]
        assert torch.equal(torch.cat(held).sort().values, torch.arange(seq_len))
        assert [len(its) for its in held] == [lane.count(seq_len) for lane in lanes]


def test_runs_of_queries():
    seen = torch.tensor([3, 3, 3, 4, 5, 6, 6, 6, 7])
    assert list(share_runs(seen)) == [Run(0, 3, 3, False), Run(3, 6, 6, True), Run(6, 8, 6, False), Run(8, 9, 7, False)]


@pytest.mark.parametrize("layout", [RankLayout(sp=2, pp=2), THREE], ids=str)
def test_lanes_differ_from_one_rank_by_roundings(layout):
    source = opened("ref:llama")
    several = on_ranks(source, layout, impl="reference")
    assert all(torch.equal(several[0], other) for other in several)
    close(several[0], source, impl="reference")


def attended(model) -> torch.Tensor:
    """[B, H, T, D] of all layers: a prompt in two parts, then single tokens, then the same after going back"""
    config, random = model.config, torch.Generator().manual_seed(7)
    heads = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
    new = [torch.randn(2, n, CONTEXT, config.head_dim, generator=random) for n in heads]
    cache, outs = model.new_cache(batch=2, capacity=CONTEXT), []

    def attend(start: int, end: int) -> None:
        cache.begin(torch.zeros(2, end - start, dtype=torch.int64))
        some = [x[:, :, start:end].contiguous() for x in new]
        for layer in range(config.num_layers):
            outs.append(cache.attend(layer, *some, torch.arange(start, end)).clone())
        cache.advance(end - start)

    attend(0, 30)
    attend(30, PROMPT)
    cache.mark()
    for _ in range(2):
        for at in range(PROMPT, PROMPT + NUM_STEPS):
            attend(at, at + 1)
        cache.truncate(PROMPT)
    return torch.cat(outs, 2)


@pytest.mark.parametrize(
    "impl", ["auto", pytest.param("reference", marks=pytest.mark.exhaustive("the kernels' oracle"))]
)
@pytest.mark.parametrize("kv", [None, *(name for name in KV_FORMATS if name not in CALIBRATED)])
def test_every_kv_format(kv, impl):
    """The codes are those of one rank. Kernels may round weights and values to bf16, of which a sum of weights 1 keeps
    the relative error; values are of order 4.
    """
    source = opened("ref:llama", kv)
    first, second = on_ranks(source, RankLayout(sp=2), attended, impl)
    assert torch.equal(first, second)
    expected = attended(load_model(source, RunOptions(threads=1), impl="reference"))
    tolerance = 4 * (2**-24 * CONTEXT**0.5 * 4 if impl == "reference" else 2**-7)
    assert (first - expected).abs().max() <= tolerance


@pytest.mark.parametrize(("depth", "num_new"), [(150, 100), (200, 60), (100, 60), (130, 20), (64, 80)])
def test_encoded_tokens_are_floats_again_after_going_back_to_a_mark(depth, num_new):
    def repeated(model) -> list[torch.Tensor]:
        tokens = torch.randint(
            model.config.vocab_size, (1, depth + num_new), generator=torch.Generator().manual_seed(5)
        )
        cache = model.new_cache(capacity=depth + num_new)
        model(tokens[:, :depth], cache, last_only=True)
        cache.mark()
        rows = []
        for _ in range(2):
            rows.append(model(tokens[:, depth:], cache))
            cache.truncate(depth)
        return rows

    first, again = on_ranks(opened("ref:llama", "kv-kivi-2"), RankLayout(sp=2), repeated)[0]
    assert torch.equal(first, again)


@pytest.mark.parametrize("kept", [0, 165])
@pytest.mark.parametrize("kv", ["kv-kivi-2", "kv-kivi-4"])
def test_a_mark_is_forgotten_when_other_tokens_replace_its_tokens(kv, kept):
    """170 tokens are 32 encoded ones and a residual, and so are 165."""

    def replaced(model) -> None:
        held, other = torch.randint(model.config.vocab_size, (2, 1, 170), generator=torch.Generator().manual_seed(1))
        cache = model.new_cache(capacity=400)
        model(held, cache)
        cache.mark()
        cache.truncate(kept)
        for tokens in (other, held[:, :50]):
            model(tokens, cache, last_only=True)
        held_tokens = cache.seq_len
        with pytest.raises(InputError, match="goes back to the marked length or to 0; got 170 tokens"):
            cache.truncate(170)
        assert cache.seq_len == held_tokens, "a refused length changes nothing"

    on_ranks(opened("ref:llama", kv), RankLayout(sp=2), replaced)


def test_a_lane_that_is_left_out_is_another_model(monkeypatch):
    """So the tests above would see it."""
    source = opened("ref:llama")
    monkeypatch.setattr(Ranks, "gather", lambda ranks, x: [x])
    found = on_ranks(source, RankLayout(sp=2), impl="reference")[0]
    expected = logits(load_model(source, RunOptions(threads=1), impl="reference"))
    assert (found - expected).abs().max() > expected.std()


def padded(model) -> torch.Tensor:
    """Logits of sequences of different lengths, [n, V]"""
    tokens = torch.randint(model.config.vocab_size, (2, 150), generator=torch.Generator().manual_seed(5))
    cache = model.new_cache(batch=2, capacity=CONTEXT)
    first = model(tokens, cache, num_valid=[150, 70])
    steps = [model(tokens[:, at : at + 1], cache)[:, 0] for at in range(2)]
    return torch.cat([first[0], first[1, :70], *steps])


@pytest.mark.parametrize("kv", [None, "kv-kivi-4"])
def test_sequences_of_different_lengths(kv):
    source = opened("ref:llama", kv)
    first, _ = on_ranks(source, RankLayout(sp=2), padded, "reference")
    expected = padded(load_model(source, RunOptions(threads=1), impl="reference"))
    bound = 2**-24 * 512**0.5 * 16 * expected.abs().max() if kv is None else expected.std() * 2**-4
    assert (first - expected).abs().max() <= bound  # a code of a later layer may flip


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2", "bloom", "mixtral", "qwen3"])
@pytest.mark.parametrize("impl", ["auto", "reference"])
def test_windows_capped_scores_and_distances(kind, impl):
    config = small_config(kind)
    source = ArraySource(config, random_weights(config))
    tokens = torch.randint(160, (2, 120), generator=torch.Generator().manual_seed(1))
    several = on_ranks(source, RankLayout(sp=2), lambda model: model(tokens), impl)
    expected = load_model(source, RunOptions(threads=1), impl="reference")(tokens)
    # As on one rank: sums of up to 120 terms in each of 2 layers, and bf16 weights of experts if kernels multiply them.
    assert (several[0] - expected).abs().max() <= 2**-24 * 120**0.5 * 64 * expected.abs().max()


def test_each_rank_holds_half_of_the_kv_cache():
    def held(model) -> tuple[int, float]:
        cache = model.new_cache(batch=1, capacity=4 * SHARE_TOKENS)
        model(torch.zeros(1, 4 * SHARE_TOKENS, dtype=torch.int64), cache, last_only=True)
        return cache.size_bytes

    source = opened("ref:llama", "kv-int8")
    whole = held(load_model(source, RunOptions(threads=1)))
    assert on_ranks(source, RankLayout(sp=2), held) == [whole // 2] * 2
    assert on_ranks(source, RankLayout(sp=4), held) == [whole // 4] * 4


@pytest.mark.parametrize("layout", [RankLayout(sp=2), RankLayout(sp=2, pp=2), THREE], ids=str)
def test_bytes_and_messages_are_the_formulas(layout):
    """Per layer and token each lane sends 4 x 64 values and 4 lse to each other lane, in one message per pass."""

    def work(ranks):
        model = model_on(ranks, opened("ref:llama"))
        model(torch.zeros(1, 100, dtype=torch.int64), last_only=True)
        work, hidden = ranks.traffic, model.config.hidden_size
        formula = expected_traffic(layout, ranks.rank, work, exchanges=model.exchanges, hidden_size=hidden)
        return (work.num_bytes, work.num_messages), formula

    found = run_ranks(layout, work)
    assert all(sent == formula for sent, formula in found)
    if layout.pp == 1:
        others = layout.sp - 1
        assert found[0][0] == (4 * others * 4 * 100 * 4 * (64 + 1), others * 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "h2o:64"}, "--policy h2o:64 does not combine with sp 2, pp 1 yet"),
        ({"cache": "paged"}, "--cache paged does not combine with sp 2"),
        ({"attention": "textbook"}, "--attention textbook does not combine with sp 2"),
        ({"division": "tp=2,sp=2"}, "tp 2 does not combine with sp 2 yet"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        RunOptions(**{"division": "sp=2", **options})


def test_a_loaded_model_keeps_its_shares_or_refuses():
    """Another layout and another KV format keep them; a policy and pages are refused."""
    scheme = KVScheme.of(opened("ref:llama", "kv-int8").config, ModelConfig.of(opened("ref:llama")), "ref:llama")

    def work(model):
        for other in (model.cached_by(CacheSpec(STATIC)), model.keeping(scheme)):
            assert other.new_cache(capacity=SHARE_TOKENS).view.share.num_lanes == 2
        with pytest.raises(InputError, match="--policy h2o:64 does not combine with sp 2, pp 1 yet"):
            model.following("h2o:64")
        with pytest.raises(InputError, match="--cache paged does not combine with sp 2, pp 1 yet"):
            model.cached_by(CacheSpec(PAGED))

    on_ranks(opened("ref:llama"), RankLayout(sp=2), work)


def test_latents_are_refused():
    with pytest.raises(InputError, match="sp=2 does not divide the latents of a DeepseekV2ForCausalLM yet; use pp"):
        on_ranks(opened("ref:mla-moe"), RankLayout(sp=2))
