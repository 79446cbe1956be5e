"""Penalties and biases against OpenAI's formula, token by token."""

import pytest
import torch

from qbench.runtime import Sampling
from qbench.runtime.text.sampling import Nudges, Sampler
from quant.errors import InputError


def by_the_formula(logits, answer, presence, frequency, bias):
    found = []
    for token, logit in enumerate(logits):
        count = answer.count(token)
        found.append(logit - count * frequency - float(count > 0) * presence + bias.get(token, 0.0))
    return found


@pytest.mark.parametrize("presence, frequency", [(0.0, 0.0), (0.5, 0.0), (0.0, -0.25), (1.5, 2.0)])
@pytest.mark.parametrize("answer", [[], [3], [3, 1, 3, 3]])
def test_logits_follow_the_formula(presence, frequency, answer):
    logits, bias = torch.randn(6, generator=torch.Generator().manual_seed(1)), {2: -100.0, 3: 1.5}
    before = logits.clone()
    found = Nudges(presence, frequency, tuple(bias.items())).added(logits, answer)
    expected = by_the_formula(logits.tolist(), answer, presence, frequency, bias)
    assert found.tolist() == pytest.approx(expected, rel=1e-6) and torch.equal(logits, before)


def test_tokens_of_the_prompt_are_not_penalized():
    sampler = Sampler(Sampling(nudges=Nudges(presence_penalty=2.0)))
    logits = torch.tensor([1.0, 2.0, 0.0])
    assert sampler(logits, [1, 1], num_prompt=2) == 1
    assert sampler(logits, [1, 1], num_prompt=1) == 0


@pytest.mark.parametrize(
    "fields, part",
    [
        ({"presence_penalty": 2.1}, "presence_penalty is 2.1"),
        ({"frequency_penalty": float("nan")}, "frequency_penalty is nan"),
        ({"logit_bias": ((1, 101.0),)}, "logit_bias of token 1"),
        ({"logit_bias": ((-1, 1.0),)}, "logit_bias of token -1"),
    ],
)
def test_impossible_nudges_are_refused(fields, part):
    with pytest.raises(InputError, match=part):
        Nudges(**fields)
