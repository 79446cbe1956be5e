"""Every architecture on two stages, and on two lanes if it can be cut: biases, norms of heads, windows, positions."""

import pytest
import torch
from support.architectures import KINDS, random_weights, small_config
from support.array_source import ArraySource
from support.thread_ranks import model_on, run_ranks

from qbench.run.options import RunOptions
from qbench.run.rank_layout import GATHER, RankLayout
from qbench.runtime import load_model
from quant.errors import InputError

TOKENS = torch.randint(160, (2, 40), generator=torch.Generator().manual_seed(1))
UNCUT = {"mixtral", "qwen3moe", "deepseek2", "deepseek3", "bloom"}  # experts, latent attention, ALiBi


def on_ranks(source, layout, impl="auto") -> torch.Tensor:
    first, *others = run_ranks(layout, lambda ranks: model_on(ranks, source, impl)(TOKENS))
    assert all(torch.equal(first, other) for other in others)
    return first


def source_of(kind: str) -> ArraySource:
    config = small_config(kind)
    return ArraySource(config, random_weights(config))


@pytest.mark.parametrize("kind", KINDS)
def test_stages_and_the_gathering_cut_are_equal(kind):
    source = source_of(kind)
    expected = load_model(source, RunOptions(threads=1))(TOKENS)
    assert torch.equal(on_ranks(source, RankLayout(pp=2)), expected)
    if kind in UNCUT:
        with pytest.raises(InputError, match=r"tp does not cut a .* yet; use pp"):
            on_ranks(source, RankLayout(tp=2))
    else:
        assert torch.equal(on_ranks(source, RankLayout(tp=2, cut=GATHER)), expected)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in UNCUT])
def test_the_summing_cut_differs_by_the_order_of_sums(kind):
    source = source_of(kind)
    expected = load_model(source, RunOptions(threads=1), impl="reference")(TOKENS)
    # Two sums of up to 96 terms in each of 2 layers, whose order changes, and the roundings that follow from it.
    tolerance = 2**-24 * 96**0.5 * 16 * expected.abs().max()
    assert (on_ranks(source, RankLayout(tp=2), "reference") - expected).abs().max() <= tolerance
