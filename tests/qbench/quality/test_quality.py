"""Perplexity and KLD against a textbook loop, on logits with ties, certainty and poison."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from support.close import assert_close
from support.perplexity import plan_of

from qbench.quality.kld.kld import divergence
from qbench.quality.protocols.perplexity import perplexity_statistics, token_nll
from qbench.quality.quality import Reference, measure_quality
from quant.errors import InputError

VOCAB = 37
DOUBLE = 2.0**-52


def documents(found) -> list[dict]:
    return [quality.to_json() for quality in found]


def loop_log_softmax(row: list[float]) -> list[float]:
    """log(exp(x) / sum(exp(x))) with the largest taken out, one number after another."""
    top = max(row)
    total = math.fsum(math.exp(value - top) for value in row)
    return [value - top - math.log(total) for value in row]


def random_logits(rows: int, seed: int, scale: float = 4.0) -> torch.Tensor:
    return scale * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def table_model(seed: int):
    """A "model" whose logits depend on the token alone: a fixed table."""
    table = random_logits(VOCAB, seed)
    return lambda tokens: table[tokens]  # [B, T] -> [B, T, V]


def windows_of(num: int, length: int) -> np.ndarray:
    return np.random.default_rng(0).integers(VOCAB, size=(num, length))


def test_nll_equals_the_textbook_loop():
    logits, targets = random_logits(1500, 1), torch.arange(1500) % VOCAB  # more rows than one slice takes
    expected = [-loop_log_softmax(row)[target] for row, target in zip(logits.tolist(), targets.tolist(), strict=True)]
    assert_close(token_nll(logits, targets), expected, rtol=VOCAB * DOUBLE, atol=VOCAB * DOUBLE)


def test_divergence_equals_the_textbook_loop():
    model, reference, targets = random_logits(1100, 2), random_logits(1100, 3), torch.arange(1100) % VOCAB
    got = divergence(model, reference, targets)
    for i in range(0, 1100, 97):
        log_q, log_p = loop_log_softmax(model[i].tolist()), loop_log_softmax(reference[i].tolist())
        kld = math.fsum(math.exp(p) * (p - q) for p, q in zip(log_p, log_q, strict=True))
        target = int(targets[i])
        bound = 8 * VOCAB * DOUBLE
        assert_close(got.kld[i], kld, rtol=bound)
        assert_close(got.delta_p[i], math.exp(log_q[target]) - math.exp(log_p[target]), atol=bound)
        assert got.same_top[i] == (log_q.index(max(log_q)) == log_p.index(max(log_p)))


def test_a_model_does_not_diverge_from_itself():
    windows = windows_of(5, 12)
    model = table_model(4)
    (result,) = documents(measure_quality(model, [plan_of(windows)], VOCAB, reference=Reference(VOCAB, model)))
    assert result["kld"]["max"] == 0 and result["same_top"] == 1 and result["mean_delta_p"] == 0
    assert result["blocks"]["kld"] == [0.0] * 5 and result["blocks"]["same_top"] == [11.0] * 5


def test_a_shift_of_all_logits_changes_nothing():
    logits, targets = random_logits(50, 5), torch.arange(50) % VOCAB
    result = divergence(logits + 8.0, logits, targets)
    assert_close(result.kld, np.zeros(50), atol=VOCAB * 2.0**-23)  # the shift itself rounds in float32


def test_small_divergences_survive_the_arithmetic():
    reference = random_logits(200, 6)
    noise = 1e-3 * torch.randn(reference.shape, generator=torch.Generator().manual_seed(7))
    got = divergence(reference + noise, reference, torch.zeros(200, dtype=torch.int64)).kld
    probs = reference.double().softmax(-1)
    exact_noise = (reference + noise).double() - reference.double()
    second_order = 0.5 * ((probs * exact_noise**2).sum(-1) - (probs * exact_noise).sum(-1) ** 2)  # variance / 2
    assert_close(got, second_order, rtol=10 * 1e-3)  # the next term is smaller by the noise


def test_perplexity_scores_every_token_but_a_windows_first():
    windows = windows_of(8, 11)
    model = table_model(8)
    (result,) = documents(measure_quality(model, [plan_of(windows)], VOCAB))
    total = 0.0
    for window in windows:
        for previous, token in pairwise(window):
            total -= loop_log_softmax(model(torch.tensor(previous)).tolist())[token]
    assert result["num_tokens"] == 80 and result["num_windows"] == 8
    assert_close(result["perplexity"], math.exp(total / 80), rtol=100 * VOCAB * DOUBLE)
    low, high = result["perplexity_interval"]
    assert low < result["perplexity"] < high
    blocks = result["blocks"]
    assert blocks["unit"] == "window" and blocks["tokens"] == [10] * 8 and "kld" not in blocks
    assert_close(math.exp(sum(blocks["nll"]) / 80), result["perplexity"], rtol=100 * VOCAB * DOUBLE)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf], ids=["nan", "inf", "-inf"])
def test_logits_that_are_not_finite_are_counted_and_never_averaged(poison):
    def broken(tokens):
        logits = table_model(9)(tokens).clone()
        logits[0, 3, 5] = poison
        return logits

    (result,) = documents(
        measure_quality(broken, [plan_of(windows_of(2, 10))], VOCAB, reference=Reference(VOCAB, table_model(9)))
    )
    assert result["non_finite"] == 1 and result["perplexity"] is None and result["perplexity_interval"] is None
    assert result["non_finite_kld"] == 1 and result["kld"] is None and result["same_top"] is None
    assert result["blocks"] is None


def test_a_reference_with_another_vocabulary_is_refused():
    with pytest.raises(InputError, match="37 tokens and its reference 40"):
        measure_quality(table_model(1), [plan_of(windows_of(1, 4))], VOCAB, reference=Reference(40, table_model(1)))


def test_one_window_has_no_interval():
    assert perplexity_statistics(np.ones(5), plan_of(windows_of(1, 6))).perplexity_interval is None
