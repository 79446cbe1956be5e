"""Operations of every mode against a count of the multiplications themselves."""

import pytest
import torch
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from qbench.mla.layer import Layer
from qbench.mla.work import crossover_tokens, forward_flop
from qbench.runtime.attention.mla_modes import MODES
from quant.models import ModelConfig


def layer_of(**sizes) -> Layer:
    config = small_config("deepseek2", **sizes)
    return Layer(ArraySource(config, random_weights(config)))


@pytest.mark.parametrize("sizes", [{}, {"q_lora_rank": 24}], ids=["plain queries", "low-rank queries"])
@pytest.mark.parametrize("mode", MODES)
def test_counted_are_the_products_that_torch_does(monkeypatch, mode, sizes):
    for module in ("linear", "builder"):  # nobody counts products of cpu_kernels
        monkeypatch.setattr(f"qbench.runtime.layers.{module}.has_cpu_kernels", lambda: False)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", two_products)
    layer = layer_of(**sizes)
    cache, x = layer.cache(mode, 1, 9, 1), layer.inputs(1, 1)
    layer.run(x, cache)  # forms the matrices of later calls
    with FlopCounterMode(display=False) as counter:
        layer.run(x, cache)
    expected = sum(forward_flop(layer.config, MODES[mode], 9, 1).values())
    if mode == "materialised" and not sizes:  # plain queries come out of one product with the latent, and are dropped
        expected += 2 * layer.config.hidden_size * layer.config.q_size
    assert counter.get_total_flops() == expected


def two_products(q: Tensor, k: Tensor, v: Tensor, **options) -> Tensor:
    """Attention as far as it is counted: FlopCounterMode knows no fused one of the CPU."""
    return (q @ k.transpose(-1, -2)) @ v


def test_crossover_of_deepseek_v2_follows_from_its_products():
    """Per pair of one head 192 + 128 products against 512 + 64 + 512; 171 new tokens even them out."""
    config = ModelConfig.from_hf(
        small_config("deepseek2", kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)
    )
    pairs = {name: forward_flop(config, mode, 1000, 1)["pairs"] for name, mode in MODES.items()}
    assert pairs["decompressed"] == pairs["compressed"] == 2 * 1001 * 4 * 320
    assert pairs["absorbed"] == pairs["elided"] == pairs["materialised"] == 2 * 1001 * 4 * 1088
    assert round(crossover_tokens(config.mla)) == 171
    many, few = (
        [sum(forward_flop(config, MODES[name], 10**6, new).values()) for name in ("elided", "compressed")]
        for new in (172, 170)
    )
    assert many[0] > many[1]
    assert few[0] < few[1]


def test_all_new_tokens_see_themselves_and_earlier_tokens():
    config = ModelConfig.from_hf(small_config("deepseek2"))
    together = forward_flop(config, MODES["elided"], 5, 7)
    single = [forward_flop(config, MODES["elided"], 5 + i, 1) for i in range(7)]
    assert together == {term: sum(one[term] for one in single) for term in together}
