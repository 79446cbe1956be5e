"""Tensor and pipeline parallel against one rank: every linear format, with threads in place of processes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from support.thread_ranks import model_on, run_ranks

from qbench.calibration.open_subject import open_subject
from qbench.run.options import RunOptions
from qbench.run.rank_layout import GATHER, RankLayout
from qbench.runtime import load_model
from qbench.runtime.layers.kernel_layers import KernelLayers
from qbench.runtime.parallel.ranks import Ranks
from qbench.runtime.parallel.traffic import expected_traffic
from quant.errors import InputError
from quant.formats import ActivationFormat, LlmInt8Format, get_format
from quant.source import Source


class PinnedRoundings:
    """Rounded inputs of a run on one rank, call by call, which runs on lanes then take for their own.

    Sums in another order then flip no code. Both codes are right on the border between them, and no formula of float32
    bounds the effect of a flip: in rtn-w8a8 of ref:llama the first flip moves 23 codes of the next product, then 93,
    358, and at last 3,108. Whether there is a first one depends on how torch orders its sums.

    excess   the largest of all lanes and calls so far: how much further an input is from one rank's code than from its
             lane's, over the bound for codes on borders. Above 1 the lanes round otherwise
    """

    def __init__(self, source: Source, sums_differ_by: float, monkeypatch) -> None:
        """sums_differ_by   bound for the inputs of a call in another order of sums, over the largest of them"""
        self.sums_differ_by = sums_differ_by
        self.excess = 0.0
        self._calls: list[np.ndarray] = []
        self._lane = threading.local()
        formats = {get_format(info.format) for info in source.tensors.values()}
        for fmt in {type(fmt) for fmt in formats if isinstance(fmt, ActivationFormat)}:
            monkeypatch.setattr(fmt, "fake_quantize_input", self._pinned(fmt.fake_quantize_input))

    @property
    def num_calls(self) -> int:
        """Rounded inputs of the run on one rank."""
        return len(self._calls)

    def pin(self, ranks: Ranks) -> None:
        """From now on this thread is a lane, at the start of its run."""
        self._lane.number, self._lane.calls = ranks.lane, iter(self._calls)

    def _pinned(self, round_input: Callable) -> Callable:
        def taken(fmt, x, shared):
            own = round_input(fmt, x, shared)
            if not hasattr(self._lane, "number"):
                self._calls.append(own)
                return own
            whole, num_features = next(self._lane.calls), x.shape[1]
            if num_features != whole.shape[1]:  # a lane's features, then the magnitude of all
                columns = np.arange(num_features - 1) + self._lane.number * (num_features - 1)
                whole = np.column_stack((whole[:, columns], own[:, -1]))
            further = np.abs(np.abs(whole - x) - np.abs(own - x)).max()
            self.excess = max(self.excess, float(further / self._border(fmt, x)))
            return whole

        return taken

    def _border(self, fmt: ActivationFormat, x: np.ndarray) -> float:
        """How much further another code of a call may be if sums differ by d: by d, and by d of the scale's magnitude.

        LLM.int8() rounds to float16 before: two roundings by 2**-11 join each d, and the input is off by one of its own
        from the number whose code is taken.
        """
        d, half = self.sums_differ_by, 2.0**-11 if isinstance(fmt, LlmInt8Format) else 0.0
        return (2 * (d + 2 * half) + 2 * half) * float(np.abs(x).max())


def order_of_sums(num_terms: int, num_sums: int) -> float:
    """How much the results of so many float32 sums after each other may differ by their order, over the largest."""
    return torch.finfo(torch.float32).eps / 2 * num_terms**0.5 * num_sums


NUM_TOKENS, PROMPT, NUM_STEPS = 40, 24, 2  # twice 40: K-quants have another kernel from 64 tokens on
RECIPES = (
    *("bf16", "rtn-w8", "rtn-w4g128", "rtn-w3g128", "rtn-w8a8", "rtn-w8a8-tensor", "llm-int8"),
    *("q8_0", "q5_1", "q4_0", "iq4_nl", "mxfp4", "q6_k", "q4_k_m", "iq4_xs", "q2_k", "q3_k_m"),
)
ROUNDS_INPUTS = ("rtn-w8a8", "rtn-w8a8-tensor", "llm-int8")
# Sums of up to 768 terms, two in each of 4 layers
SUMS_DIFFER_BY = order_of_sums(768, 8)
SUPER_BLOCKS = ("q6_k", "q4_k_m", "iq4_xs", "q2_k", "q3_k_m")  # of 256, which is all that ref:llama's heads give


@dataclass
class Several:
    """Logits of every rank, bytes and messages that each sent, and the formula for both."""

    logits: list
    sent: list
    formula: list


def logits(model) -> torch.Tensor:
    """[n, V] of a prompt, of tokens after it one by one, and of the last token of a batch without a cache"""
    tokens = torch.randint(model.config.vocab_size, (2, NUM_TOKENS), generator=torch.Generator().manual_seed(3))
    cache = model.new_cache(batch=1, capacity=NUM_TOKENS)
    rows = [model(tokens[:1, :PROMPT], cache)[0]]
    rows += [model(tokens[:1, at : at + 1], cache)[0] for at in range(PROMPT, PROMPT + NUM_STEPS)]
    return torch.cat([*rows, model(tokens, last_only=True)[:, 0]])


def on_ranks(source, layout, impl="auto", path="auto", begin=lambda ranks: None) -> Several:
    """begin   called by each rank first"""

    def work(ranks):
        begin(ranks)
        model = model_on(ranks, source, impl, path)
        found = logits(model)
        hidden = model.config.hidden_size
        formula = expected_traffic(layout, ranks.rank, ranks.traffic, exchanges=model.exchanges, hidden_size=hidden)
        return found, (ranks.traffic.num_bytes, ranks.traffic.num_messages), formula

    return Several(*map(list, zip(*run_ranks(layout, work), strict=True)))


def opened(spec, recipe=None):
    return open_subject(spec, RunOptions(recipe, threads=1)).source


def expected(source, impl="auto"):
    return logits(load_model(source, RunOptions(threads=1), impl=impl))


@cache
def expected_of(recipe):
    """Logits of one rank, which several tests compare with."""
    return expected(opened("ref:llama", recipe))


@pytest.mark.parametrize("layout", [RankLayout(pp=2), RankLayout(tp=2, cut=GATHER)], ids=str)
@pytest.mark.parametrize("recipe", RECIPES)
def test_stages_and_the_gathering_cut_give_the_bits_of_one_rank(recipe, layout):
    several, truth = on_ranks(opened("ref:llama", recipe), layout), expected_of(recipe)
    assert all(torch.equal(found, truth) for found in several.logits)
    assert several.sent == several.formula


@pytest.mark.parametrize("recipe", [recipe for recipe in RECIPES if recipe not in SUPER_BLOCKS])
def test_the_summing_cut_differs_by_the_order_of_sums(recipe, monkeypatch):
    """Formats that round inputs have one rank's codes in both runs: a lane's own may differ on borders only."""
    source = opened("ref:llama", recipe)
    roundings = PinnedRoundings(source, SUMS_DIFFER_BY, monkeypatch)
    truth = expected(source, impl="reference")
    several = on_ranks(source, RankLayout(tp=2), impl="reference", begin=roundings.pin)
    assert torch.equal(several.logits[0], several.logits[1])
    assert (several.logits[0] - truth).abs().max() <= SUMS_DIFFER_BY * truth.abs().max()
    assert roundings.excess <= 1 and (roundings.num_calls > 0) == (recipe in ROUNDS_INPUTS)
    assert several.sent == several.formula


@pytest.mark.parametrize("recipe", ["bf16", "rtn-w4g128", "q8_0"])
def test_lanes_run_all_layers_in_one_call_with_the_bits_of_single_products(recipe, monkeypatch):
    source, calls = opened("ref:llama", recipe), []
    run = KernelLayers.__call__
    monkeypatch.setattr(KernelLayers, "__call__", lambda *call: calls.append(call) or run(*call))
    chained = on_ranks(source, RankLayout(tp=2))
    assert len(calls) == 2 * (1 + NUM_STEPS)  # the batch without a cache goes through Python
    single = on_ranks(source, RankLayout(tp=2), path="python")
    assert torch.equal(chained.logits[0], single.logits[0]) and torch.equal(chained.logits[0], chained.logits[1])
    assert chained.sent == single.sent == chained.formula


@pytest.mark.parametrize("recipe", ROUNDS_INPUTS)
def test_a_cut_without_the_magnitude_of_all_lanes_is_found(recipe, monkeypatch):
    """The test above finds a lane that scales its part of an input by itself."""
    monkeypatch.setattr(Ranks, "largest", lambda ranks, x: ranks.gather(x)[ranks.lane])
    source = opened("ref:llama", recipe)
    roundings = PinnedRoundings(source, SUMS_DIFFER_BY, monkeypatch)
    expected(source, impl="reference")
    on_ranks(source, RankLayout(tp=2), impl="reference", begin=roundings.pin)
    assert roundings.excess > 1


@pytest.mark.parametrize("recipe", SUPER_BLOCKS)
def test_a_cut_through_a_group_is_refused_with_the_legal_ones(recipe):
    with pytest.raises(InputError, match=r"groups of 256 .*legal: tp=1, tp=2,cut=gather, or pp=2"):
        on_ranks(opened("ref:llama", recipe), RankLayout(tp=2))


@pytest.mark.parametrize("spec", ["ref:llama", "rand:tiny"])
def test_four_lanes_share_two_heads_of_keys(spec):
    source = opened(spec)
    several = on_ranks(source, RankLayout(tp=4), impl="reference")
    truth = expected(source, impl="reference")
    assert (several.logits[3] - truth).abs().max() <= SUMS_DIFFER_BY * truth.abs().max()


@pytest.mark.parametrize("layout", [RankLayout(tp=2, pp=2, cut=GATHER), RankLayout(pp=4)], ids=str)
def test_four_ranks(layout):
    source = opened("ref:llama")
    several, truth = on_ranks(source, layout), expected(source)
    assert all(torch.equal(found, truth) for found in several.logits)
    assert several.sent == several.formula


@pytest.mark.parametrize("spec", ["ref:mla-moe", "rand:tiny-moe"])
def test_stages_of_experts_and_of_latent_attention(spec):
    source = opened(spec)
    assert torch.equal(on_ranks(source, RankLayout(pp=2)).logits[0], expected(source))


def test_bytes_and_messages_per_token():
    """Per layer and token each of two lanes sends 2 x 256 float32 in 2 messages per pass; then its half of the logits.

    The last net computes the tokens whose logits are asked for: all, except in the batch at the end.
    """
    several = on_ranks(opened("ref:llama"), RankLayout(tp=2))
    num_tokens, num_passes = PROMPT + NUM_STEPS + 2 * NUM_TOKENS, 1 + NUM_STEPS + 1
    num_wanted = num_tokens - 2 * NUM_TOKENS + 2
    values = (3 * 2 + 1) * 256 * num_tokens + (256 + 1536 // 2) * num_wanted
    assert several.sent == [(4 * values, (4 * 2 + 1) * num_passes)] * 2


@pytest.mark.parametrize(
    ("spec", "layout", "message"),
    [
        ("ref:llama", RankLayout(tp=3), "tp=3 does not divide the 4 heads and 2 key-value heads .* 1, 2, 4, or pp"),
        ("ref:llama", RankLayout(pp=5), "pp=5 is more than the 4 layers"),
        ("ref:mla-moe", RankLayout(tp=2), "does not cut a DeepseekV2ForCausalLM yet; use pp"),
    ],
)
def test_a_model_that_cannot_be_divided(spec, layout, message):
    with pytest.raises(InputError, match=message):
        on_ranks(opened(spec), layout)
