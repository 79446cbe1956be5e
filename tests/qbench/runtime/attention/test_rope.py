"""Frequencies against transformers' formulas, the rotation against complex multiplication."""

import pytest
import torch
from support.close import assert_close
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from qbench.runtime.attention.rope import RotationTable, inverse_frequencies, rotate, rotation
from quant.models import RopeConfig

LLAMA3 = {"factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


@pytest.mark.parametrize(
    "rope_type, parameters",
    [("default", {}), ("linear", {"factor": 4.0}), ("llama3", LLAMA3)],
    ids=lambda x: str(x)[:8],
)
@pytest.mark.parametrize("head_dim", [2, 64, 128])
def test_frequencies_equal_transformers(rope_type, parameters, head_dim):
    rope = RopeConfig(rope_type, theta=500000.0, **parameters)
    config = LlamaConfig(
        hidden_size=2 * head_dim,
        num_attention_heads=2,
        max_position_embeddings=131072,
        rope_parameters={"rope_type": rope_type, "rope_theta": 500000.0, **parameters},
    )
    expected = LlamaRotaryEmbedding(config).inv_freq
    # a handful of float32 operations without cancellation
    assert_close(inverse_frequencies(rope, head_dim), expected, rtol=8 * 2**-24)


def test_rotation_is_complex_multiplication():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 5, 8, generator=generator)
    positions = torch.tensor([0, 1, 7, 100, 1000])
    frequencies = inverse_frequencies(RopeConfig(), 8)
    angles = positions.double()[:, None] * frequencies.double()  # [T, D/2]
    turned = torch.complex(*x.double().chunk(2, -1)) * torch.polar(torch.ones_like(angles), angles)
    got = rotate(x, *rotation(frequencies, positions))
    # float32 angles up to 1000 radians are off by half an ulp of 1000
    assert_close(got, torch.cat((turned.real, turned.imag), -1), atol=float(2 * x.abs().max()) * 1000 * 2**-23)


def test_position_zero_is_the_identity():
    x = torch.randn(1, 1, 1, 8, generator=torch.Generator().manual_seed(0))
    assert_close(rotate(x, *rotation(inverse_frequencies(RopeConfig(), 8), torch.tensor([0]))), x)


def test_a_table_gives_the_rotation_of_any_span():
    frequencies = inverse_frequencies(RopeConfig(), 24)
    table = RotationTable(frequencies, 1.25)
    for start, end in ((0, 5), (5, 6), (6, 7), (3, 40), (39, 40), (100, 101), (7, 7)):
        expected = rotation(frequencies, torch.arange(start, end), 1.25)
        for got, wanted in zip(table(start, end), expected, strict=True):
            assert_close(got, wanted, atol=2**-23)
