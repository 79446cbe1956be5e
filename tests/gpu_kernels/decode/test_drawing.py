"""Tokens drawn on the device: by the distribution of the runtime's sampler, and without a token on the host."""

import pytest
import torch
from scipy.stats import chisquare

from gpu_kernels.decode.llama import LlamaShape, llama_logits, random_llama
from gpu_kernels.decode.pages import zero_pages
from gpu_kernels.decode.timed_step import draw_tokens, drawing_inputs, drawing_step, next_rows
from gpu_kernels.fused.sample import Operands, philox_ref, sample, sample_ref, uniform_ref
from gpu_kernels.graphs import DecodeGraphs, eagerly
from qbench.runtime.text.sampling import Sampling, probabilities

SHAPE = LlamaShape(
    hidden_size=128, num_layers=1, num_heads=4, num_kv_heads=2, head_dim=64, intermediate_size=96, vocab_size=61
)
PAGE_SIZE = 16
SETTINGS = {"temperature": (0.0, 0.9, 1.5), "top_k": (0, 20, 0), "top_p": (1.0, 0.9, 1.0), "min_p": (0.0, 0.0, 0.1)}
DTYPES = {"top_k": torch.int32, "seed": torch.int64}


def settings(seeds):
    every = SETTINGS | {"seed": seeds}
    return {name: torch.tensor(values, dtype=DTYPES.get(name, torch.float32)) for name, values in every.items()}


def first_rows(seeds=(3, 4, 5)):
    """Three sequences of one token each, with two pages that alternate."""
    table = torch.tensor([[3, 0], [1, 4], [5, 2]], dtype=torch.int32)
    places = {"position": torch.zeros(3, dtype=torch.int64), "slot": table[:, 0].long() * PAGE_SIZE}
    token = {"token": torch.tensor([7, 7, 50]), "block_table": table, "length": torch.ones(3, dtype=torch.int32)}
    return token | places | settings(seeds)


@pytest.fixture(scope="module")
def model():
    return random_llama(SHAPE, dtype=torch.float16, device="cpu", positions=2 * PAGE_SIZE)


def pages():
    return zero_pages(1, 6, PAGE_SIZE, SHAPE.num_kv_heads, SHAPE.head_dim, torch.float16, "cpu")


def drawn(model, num_tokens, seeds=(3, 4, 5)):
    """In a bucket of four, whose fourth row is padding."""
    graphs = DecodeGraphs(drawing_step(model, pages()), drawing_inputs(2), [4], device="cpu", capture=eagerly)
    return draw_tokens(graphs, first_rows(seeds), num_tokens, PAGE_SIZE)


def test_philox_is_the_published_one():
    """Vectors of Random123's known-answer file kat_vectors, philox 4x32 10."""
    one = 0xFFFFFFFF
    assert philox_ref((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox_ref((one, one, one, one), (one, one)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


def test_tokens_match_steps_one_by_one(model):
    """The oracle's draws from the logits of the text so far, on to the second page; the first sequence is greedy."""
    held, rows, expected = pages(), first_rows(), []
    for position in range(18):
        logits = llama_logits(model, held, rows)
        named = {name: rows[name] for name in (*SETTINGS, "seed", "position")}
        token, _ = sample_ref(Operands(logits, None, **named))
        assert token[0] == logits[0].argmax() and (rows["length"] == position + 1).all()
        expected.append(token)
        rows = next_rows(rows, token, PAGE_SIZE) if position < 17 else rows
    assert torch.equal(drawn(model, 18), torch.stack(expected, 1))


def test_a_seed_is_a_text(model):
    one, other = drawn(model, 6), drawn(model, 6, seeds=(9, 4, 6))
    assert torch.equal(one, drawn(model, 6))
    assert torch.equal(one[:2], other[:2]) and not torch.equal(one[2], other[2])


@pytest.mark.parametrize("top_k, top_p, min_p", [(0, 1.0, 0.0), (5, 1.0, 0.0), (0, 0.8, 0.0), (0, 1.0, 0.2)])
def test_the_distribution_is_the_samplers(top_k, top_p, min_p):
    """1,500 seeds at one position; a right generator fails in one of 10,000 choices of seeds, and these are fixed."""
    count, logits = 1500, torch.tensor([0.3, 2.0, -1.0, 1.1, 0.9, -3.0, 1.9])
    expected = probabilities(logits, Sampling(0.8, top_p, top_k, min_p))
    fixed = {"temperature": 0.8, "top_p": top_p, "min_p": min_p}
    given = {name: torch.full((count,), value) for name, value in fixed.items()}
    given |= {"seed": torch.arange(count) * 7919, "position": torch.full((count,), 12)}
    top = torch.full((count,), top_k, dtype=torch.int32)
    token, _ = sample(Operands(logits.repeat(count, 1), None, top_k=top, **given))
    counts = torch.bincount(token, minlength=len(logits))
    assert counts[expected == 0].sum() == 0
    kept = expected > 0
    assert chisquare(counts[kept].numpy(), (expected[kept] * count).numpy()).pvalue > 1e-4


def test_uniforms_are_below_one_and_differ_by_position():
    seed, position = torch.full((500,), 2**62 + 1), torch.arange(500)
    found = uniform_ref(seed, position)
    assert found.dtype == torch.float32 and 0 <= found.min() and found.max() < 1 and len(found.unique()) == 500
