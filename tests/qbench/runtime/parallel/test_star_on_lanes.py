"""Star Attention's two phases over lanes, against `--prefill star` on one rank."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.thread_ranks import run_ranks

from qbench.calibration.open_subject import open_subject
from qbench.prefill import BLOCK
from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankLayout
from qbench.runtime import load_model
from qbench.runtime.caches.step import Past
from qbench.runtime.caches.view import context_part
from qbench.runtime.parallel.load import load_ranked
from qbench.runtime.parallel.traffic import expected_traffic
from quant.errors import InputError

PROMPT, NUM_STEPS = 4 * BLOCK + 150, 2
CONTEXT = 4 * BLOCK  # the query of 100 tokens begins in the block after it
STAR = "star:block=128,query=100"  # parts of one block
MORE = pytest.mark.exhaustive("as two lanes")


def opened(kv=None, recipe=None, prefill=STAR):
    return open_subject("ref:llama", RunOptions(recipe, kv_format=kv, threads=1, prefill=prefill, compute="exact"))


def tokens(batch: int = 1) -> torch.Tensor:
    return torch.randint(1500, (batch, PROMPT + NUM_STEPS), generator=torch.Generator().manual_seed(5))


def logits(model, last_only=False, batch=1) -> torch.Tensor:
    """[B, n, V]: a shorter prompt comes first and is forgotten, then a prompt and some steps are kept"""
    given, cache = tokens(batch), model.new_cache(batch=batch, capacity=PROMPT + NUM_STEPS)
    model(given[:, : BLOCK + 1], cache, last_only=True)
    cache.truncate(0)
    rows = [model(given[:, :PROMPT], cache, last_only=last_only)]
    rows += [model(given[:, at : at + 1], cache) for at in range(PROMPT, PROMPT + NUM_STEPS)]
    return torch.cat(rows, 1)


def on_lanes(subject, sp: int, work, impl="auto"):
    options = replace(subject.options, division=f"sp={sp}")
    return run_ranks(RankLayout(sp=sp), lambda ranks: work(load_ranked(subject.source, options, impl, "auto", ranks)))


@pytest.mark.parametrize("last_only", [False, pytest.param(True, marks=MORE)], ids=["all logits", "last"])
@pytest.mark.parametrize(
    ("sp", "batch"),
    [(2, 1), *(pytest.param(*sizes, marks=MORE) for sizes in ((2, 2), (3, 1), (6, 1)))],  # 6: more lanes than parts
)
def test_lanes_differ_from_one_rank_by_roundings_of_the_merge(sp, batch, last_only):
    subject, impl = opened(), "reference"  # in kernels a difference in a last bit may flip a rounding to bf16
    expected = logits(load_model(subject.source, subject.options, impl=impl), last_only, batch)
    found = on_lanes(subject, sp, lambda model: logits(model, last_only, batch), impl)
    assert all(torch.equal(found[0], other) for other in found)
    tolerance = 2**-24 * PROMPT**0.5 * 16 * expected.abs().max()  # sums in another order, in each of 4 layers
    assert (found[0] - expected).abs().max() <= tolerance


FORMATS = [None, "kv-int8", *(pytest.param(name, marks=MORE) for name in ("kv-fp8", "kv-f16", "kv-int4"))]


@pytest.mark.parametrize("kv", FORMATS)
def test_phase_1_has_the_bits_of_one_rank(kv):
    """Logits of the context, and its keys and values as stored."""

    def held(model) -> list[torch.Tensor]:
        cache = model.new_cache(capacity=PROMPT)
        found = model(tokens()[:, :PROMPT], cache)[:, :CONTEXT]
        ends = np.array([cache.view.num_slots(CONTEXT)])
        return [found, *cache.memories[-1].read(Past(cache.places.block_table, ends))]

    subject = opened(kv)
    expected, *stored = held(load_model(subject.source, subject.options))
    for lane, (found, *parts) in enumerate(on_lanes(subject, 2, held, "exact")):
        own = torch.arange(CONTEXT) // BLOCK % 2 == lane
        assert torch.equal(found, expected)
        assert all(torch.equal(part, whole[:, :, own]) for part, whole in zip(parts, stored, strict=True))


def test_parts_without_the_anchor_are_another_model(monkeypatch):
    """So the tests above would see it."""
    monkeypatch.setattr(context_part, "sees_anchor_and_own", lambda part: part[:, None] == part)
    subject = opened()
    expected = logits(load_model(subject.source, subject.options))
    found = on_lanes(subject, 2, logits)[0]
    assert (found - expected).abs().max() > expected.std() / 4


def test_a_lane_computes_the_anchor_its_parts_and_the_query():
    """Lane 0 has parts 0 and 2, lane 1 the anchor, 1 and 3; both have the 150 tokens after the context."""
    subject, rows = opened(), []

    def work(model):
        inner, own = model._embedded, []
        model._embedded = lambda step: (own.append(step.tokens.shape[1]), inner(step))[1]
        cache = model.new_cache(capacity=PROMPT)
        model(tokens()[:, :PROMPT], cache, last_only=True)
        return own, cache.size_bytes, model.prefill_tally.mean_blocks

    one = load_model(subject.source, subject.options)
    rows = on_lanes(subject, 2, work)
    assert [own for own, _, _ in rows] == [[2 * BLOCK, 150], [3 * BLOCK, 150]]
    one(tokens()[:, :PROMPT], one.new_cache(capacity=PROMPT), last_only=True)
    assert {blocks for _, _, blocks in rows} == {one.prefill_tally.mean_blocks}


@pytest.mark.parametrize("last_only", [False, True])
def test_bytes_and_messages_are_the_formulas(last_only):
    """Phase 1 sends nothing, unless all logits are asked for; phase 2 is a pass over the query."""

    def work(model):
        model(tokens()[:, :PROMPT], model.new_cache(capacity=PROMPT), last_only=last_only)
        ranks, hidden = model.ranks, model.config.hidden_size
        work = ranks.traffic
        formula = expected_traffic(ranks.layout, ranks.rank, work, exchanges=model.exchanges, hidden_size=hidden)
        return (work.num_bytes, work.num_messages), formula, work.num_tokens

    for sent, formula, num_tokens in on_lanes(opened(), 2, work):
        shown = 0 if last_only else CONTEXT // 2 * 256
        assert sent == formula == (4 * (4 * 150 * 4 * (64 + 1) + shown), 4 + (not last_only))
        assert num_tokens == 150


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prefill": "star:query=0"}, "--prefill star:query=0 does not combine with sp 2, pp 1 yet"),
        ({"prefill": "flexprefill"}, "--prefill flexprefill does not combine with sp 2, pp 1 yet"),
        ({"prefill": STAR, "division": "sp=2,pp=2"}, "does not combine with sp 2, pp 2 yet"),
        ({"prefill": STAR, "policy": "h2o:64"}, "goes with policy full"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        RunOptions(**{"division": "sp=2", **options})


def test_padded_prompts_are_refused():
    def padded(model):
        with pytest.raises(InputError, match="takes prompts of one length at once"):
            model(tokens(2)[:, :PROMPT], model.new_cache(2, PROMPT), num_valid=[PROMPT, 300])

    on_lanes(opened(), 2, padded)
