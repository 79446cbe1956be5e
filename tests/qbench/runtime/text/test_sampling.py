"""The distribution that tokens are drawn from, and the draws."""

import math

import pytest
import torch
from support.close import assert_close
from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM, LogitsProcessorList
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

from qbench.runtime.text.sampling import Sampler, Sampling, likely_tokens, penalized, probabilities
from quant.errors import InputError

LOGITS = torch.tensor([0.3, 2.0, -1.0, 1.1, 0.0, 1.9])


def test_temperature_zero_is_greedy():
    assert Sampler(Sampling(temperature=0, top_p=0.1))(LOGITS) == 1


def test_temperature_divides_logits():
    got = probabilities(LOGITS, Sampling(temperature=0.5))
    assert_close(got, torch.softmax(2 * LOGITS.double(), 0), rtol=8 * 2**-53)


@pytest.mark.parametrize("temperature", [1e-310, 5e-324])
@pytest.mark.parametrize("cuts", [{}, {"top_k": 2}, {"top_p": 0.5}, {"min_p": 0.1}], ids=str)
def test_the_smallest_temperatures_are_greedy(temperature, cuts):
    sampling = Sampling(temperature=temperature, **cuts)
    assert Sampler(sampling)(LOGITS) == 1
    assert_close(probabilities(LOGITS, sampling), torch.eye(6, dtype=torch.float64)[1], atol=0)


@pytest.mark.parametrize("top_p", [0.05, 0.3, 0.5, 0.9, 0.999, 1.0])
@pytest.mark.parametrize("seed", range(5))
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p, seed):
    logits = 3 * torch.randn(50, generator=torch.Generator().manual_seed(seed))
    full = torch.softmax(logits.double(), 0)
    kept = probabilities(logits, Sampling(temperature=1, top_p=top_p))
    members = kept > 0
    mass = full[members].sum()
    assert mass >= top_p - 50 * 2**-53
    assert mass - full[members].min() < top_p, "one token fewer would do"
    assert members.all() or full[members].min() >= full[~members].max()
    assert_close(kept, torch.where(members, full / mass, 0), atol=50 * 2**-53)


def test_top_k_keeps_the_likeliest():
    kept = probabilities(LOGITS, Sampling(temperature=1, top_k=2))
    assert kept.nonzero().flatten().tolist() == [1, 5]
    assert_close(kept[[1, 5]], torch.softmax(LOGITS[[1, 5]].double(), 0), rtol=8 * 2**-53)


def test_top_p_counts_the_tokens_left_by_top_k():
    kept = probabilities(torch.zeros(10), Sampling(temperature=1, top_k=4, top_p=0.5))
    assert_close(kept[:2], [0.5, 0.5])
    assert kept[2:].sum() == 0


@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=1, seed=3), Sampling(temperature=0.7, top_p=0.8, seed=4), Sampling(2.0, 0.95, 5, seed=5)],
    ids=["temperature 1", "top-p", "all three"],
)
def test_frequencies_follow_the_probabilities(sampling):
    num_draws = 3000
    sampler = Sampler(sampling)
    counts = torch.bincount(torch.tensor([sampler(LOGITS) for _ in range(num_draws)]), minlength=len(LOGITS))
    expected = probabilities(LOGITS, sampling) * num_draws
    possible = expected > 0
    assert counts[~possible].sum() == 0
    chi_square = ((counts - expected)[possible] ** 2 / expected[possible]).sum()
    freedom = int(possible.sum()) - 1
    # mean `freedom`, standard deviation sqrt(2 * freedom)
    assert chi_square < freedom + 4 * math.sqrt(2 * freedom)


def test_a_seed_fixes_the_draws():
    def draws(seed: int) -> list[int]:
        sampler = Sampler(Sampling(temperature=1, seed=seed))
        return [sampler(LOGITS) for _ in range(40)]

    assert draws(7) == draws(7)
    assert draws(7) != draws(8)


CUTS = {
    "none": Sampling(1.0),
    "min-p": Sampling(0.8, min_p=0.2),
    "min-p 1": Sampling(1.0, min_p=1.0),
    "top-k": Sampling(1.3, top_k=5),
    "top-p": Sampling(0.7, top_p=0.6),
    "top-p and min-p": Sampling(1.0, top_p=0.9, min_p=0.1),
    "top-k and min-p": Sampling(1.0, top_k=20, min_p=0.3),
    "all": Sampling(1.5, top_p=0.8, top_k=40, min_p=0.05),
}


@pytest.mark.parametrize("sampling", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("seed", range(3))
def test_cuts_match_transformers_in_its_order(sampling, seed):
    logits = 2 * torch.randn(1, 300, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    config = GenerationConfig(
        do_sample=True,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
    )
    expected = torch.softmax(logits_processors(config)(torch.zeros(1, 1, dtype=torch.int64), logits), -1)[0]
    assert_close(probabilities(logits[0], sampling), expected, atol=300 * 2**-53)


def logits_processors(config: GenerationConfig) -> LogitsProcessorList:
    """The processors that transformers' `generate` makes from the configuration."""
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=300, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    )
    return model._get_logits_processor(config, input_ids_seq_length=1)


@pytest.mark.parametrize("penalty", [0.5, 1.0, 1.3])
@pytest.mark.parametrize("history", [(), (2,), (1, 5, 1, 4)], ids=["none", "one", "repeated"])
def test_the_penalty_is_that_of_transformers(penalty, history):
    expected = RepetitionPenaltyLogitsProcessor(penalty)(torch.tensor([history], dtype=torch.int64), LOGITS[None])[0]
    assert_close(penalized(LOGITS, history, penalty), expected)


def test_greedy_is_penalized_too():
    assert Sampler(Sampling(repetition_penalty=1.1))(LOGITS, [1, 1]) == 5


@pytest.mark.parametrize("sampling", CUTS.values(), ids=CUTS)
@pytest.mark.parametrize("size", [1, 5, 5000])
@pytest.mark.parametrize("flat", [False, True], ids=["random", "all equal"])
def test_the_short_way_finds_the_same_tokens(sampling, size, flat):
    logits = torch.randn(size, generator=torch.Generator().manual_seed(size)) * (0 if flat else 1)
    ids, probs = likely_tokens(logits, sampling)
    got = torch.zeros(size, dtype=torch.float64).scatter(0, ids, probs)
    assert_close(got, probabilities(logits, sampling), atol=size * 2**-53)
    assert len(ids.unique()) == len(ids)


@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "drawn"])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_no_numbers_are_named(temperature, bad):
    with pytest.raises(InputError, match="weights are damaged"):
        Sampler(Sampling(temperature))(torch.tensor([0.0, bad, 1.0]))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": math.inf}, "temperature is inf"),
        ({"top_p": 0.0}, "top_p is 0.0, expected more than 0"),
        ({"top_p": 1.1}, "top_p is 1.1"),
        ({"top_k": -1}, "top_k is -1"),
        ({"min_p": -0.1}, "min_p is -0.1"),
        ({"min_p": 1.1}, "min_p is 1.1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0, expected 1e-06 to 1"),
        ({"repetition_penalty": 1e-300}, "repetition_penalty is 1e-300, expected"),
        ({"repetition_penalty": 1e300}, "expected 1e-06 to 1"),
        ({"repetition_penalty": math.nan}, "repetition_penalty is nan"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 2**63}, "seed is 9223372036854775808"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_values_are_named(arguments, message):
    with pytest.raises(InputError, match=message):
        Sampling(**arguments)
