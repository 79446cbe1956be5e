"""The bound on a divergence from a top-k reference: never broken, whatever the two distributions are."""

import numpy as np
import pytest
import torch
from support.close import assert_close

from qbench.quality.kld.kld import divergence
from qbench.quality.kld.top_k import SAMPLES, entries, keep, row_type, top_k_divergence

VOCAB = 131
DOUBLE = 2.0**-52


def normal(seed: int, scale: float, rows: int = 63) -> torch.Tensor:
    return scale * torch.randn(rows, VOCAB, generator=torch.Generator().manual_seed(seed))


def spike(at: int, height: float) -> torch.Tensor:
    """[63, V]: everything on one token"""
    logits = torch.zeros(63, VOCAB)
    logits[:, at] = height
    return logits


PAIRS = {
    "near": (normal(1, 3.0), normal(1, 3.0) + normal(2, 0.01)),
    "far": (normal(1, 3.0), normal(2, 3.0)),
    "equal": (normal(1, 3.0), normal(1, 3.0)),
    "reversed": (normal(1, 5.0), -normal(1, 5.0)),
    "flat reference": (torch.zeros(63, VOCAB), normal(2, 4.0)),
    "flat model": (normal(1, 4.0), torch.zeros(63, VOCAB)),
    "certain reference": (spike(3, 60.0), normal(2, 4.0)),
    "certain model": (normal(1, 4.0), spike(3, 60.0)),
    "certain of unlike tokens": (spike(3, 200.0), spike(5, 200.0)),
    # All of the tail's mass on the token that the model thinks least of: the upper end is reached.
    "tail on the model's last": (
        torch.log_softmax(normal(1, 1.0), -1) - 40 * torch.ones(VOCAB).scatter(0, torch.tensor([7]), 0.0),
        normal(2, 1.0) - 30 * torch.zeros(VOCAB).scatter(0, torch.tensor([7]), 1.0),
    ),
    "tail that underflows": (spike(3, 1000.0), normal(2, 4.0)),
}


@pytest.mark.parametrize("k", [1, 3, 16, 130, 131])
@pytest.mark.parametrize("reference, model", PAIRS.values(), ids=PAIRS.keys())
def test_the_bound_holds_for_every_token(reference, model, k):
    targets = torch.arange(63) % VOCAB
    exact = divergence(model, reference, targets)
    got = top_k_divergence(model, keep(reference, targets, k), targets)
    arithmetic = VOCAB * DOUBLE * (1 + exact.kld)  # of either sum
    assert (np.abs(got.kld - exact.kld) <= got.error + arithmetic).all()
    for column in ("nll", "base_nll", "delta_p", "same_top"):
        assert_close(getattr(got, column), getattr(exact, column), atol=arithmetic.max() * 200)
    assert_close(got.confidence, exact.confidence, rtol=2.0**-24 * 200)  # log p of 200 at most, kept in float32


def test_all_kept_is_exact_to_the_rounding_of_log_probabilities():
    reference, model = PAIRS["far"]
    targets = torch.zeros(63, dtype=torch.int64)
    got = top_k_divergence(model, keep(reference, targets, VOCAB), targets)
    assert got.error.max() < 2.0**-24 * 2 * 100  # sum p |log p| (1 + |log p/q|) of these is below 100
    assert_close(got.kld, divergence(model, reference, targets).kld, atol=2.0**-24 * 100)


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.2, 1.0])
def test_the_mean_is_right_within_its_expected_error(noise):
    """2,000 rows; four standard errors, and a tail of an eighth of the mass that the ends alone would not show."""
    reference = normal(3, 2.0, rows=2000)
    model, targets = reference + noise * normal(4, 1.0, rows=2000), torch.zeros(2000, dtype=torch.int64)
    exact, got = divergence(model, reference, targets), top_k_divergence(model, keep(reference, targets, 24), targets)
    off = got.kld.mean() - exact.kld.mean()
    expected = np.sqrt(got.variance.sum()) / 2000
    assert abs(off) <= 4 * expected + 2.0**-24 * 24
    assert expected <= 0.02 * exact.kld.mean() + VOCAB * DOUBLE and got.error.mean() > 10 * expected


def test_the_variance_is_that_of_the_error():
    """Strata of the tail make the error a little smaller than that of independent draws."""
    reference, targets = normal(3, 2.0, rows=2000), torch.zeros(2000, dtype=torch.int64)
    model = reference + 0.2 * normal(4, 1.0, rows=2000)
    exact, got = divergence(model, reference, targets), top_k_divergence(model, keep(reference, targets, 24), targets)
    assert 0.6 < np.mean((got.kld - exact.kld) ** 2) / got.variance.mean() < 1.1


def test_the_tokens_drawn_are_of_the_tail_and_by_its_masses():
    reference = normal(5, 1.0, rows=1).expand(5000, VOCAB)
    kept = keep(reference, torch.zeros(5000, dtype=torch.int64), 3)
    counts = np.bincount(kept["ids"][:, 3:].reshape(-1), minlength=VOCAB)
    p = reference[0].double().softmax(-1).numpy()
    p[kept["ids"][0, :3]] = 0
    expected = counts.sum() * p / p.sum()
    assert not counts[kept["ids"][0, :3]].any()
    assert (np.abs(counts - expected) <= 5 * np.sqrt(expected) + 1).all()  # strata are closer than independent draws


def test_the_same_seed_draws_the_same_tokens():
    one, again, other = (
        keep(normal(1, 3.0), torch.zeros(63, dtype=torch.int64), 4, torch.Generator().manual_seed(seed))
        for seed in (5, 5, 6)
    )
    assert np.array_equal(one, again) and not np.array_equal(one["ids"], other["ids"])


def test_more_entries_narrow_the_bound():
    reference, model = PAIRS["near"]
    targets = torch.zeros(63, dtype=torch.int64)
    errors = [top_k_divergence(model, keep(reference, targets, k), targets).error.mean() for k in (1, 4, 16, 64)]
    assert errors == sorted(errors, reverse=True) and errors[-1] < errors[0] / 10


def test_a_bound_that_ignored_the_tail_would_be_caught():
    """The check above can fail: the divergence of the kept tokens alone is outside of the rounding's bound."""
    reference, model = PAIRS["far"]
    targets = torch.zeros(63, dtype=torch.int64)
    kept = keep(reference, targets, 3)
    kept["tail_plogp"] = kept["tail"] = 0
    got = top_k_divergence(model, kept, targets)
    assert (np.abs(got.kld - divergence(model, reference, targets).kld) > got.error).any()


def test_the_first_of_equal_logits_is_the_top_one_as_in_exact_mode():
    flat = torch.zeros(5, VOCAB)
    assert keep(flat, torch.zeros(5, dtype=torch.int64), 4)["ids"][:, 0].tolist() == flat.argmax(-1).tolist()


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf], ids=["nan", "inf", "-inf"])
def test_rows_that_are_not_finite_have_no_divergence(poison):
    reference, targets = normal(1, 3.0), torch.zeros(63, dtype=torch.int64)
    broken = reference.clone()
    broken[4, 100] = poison
    of_reference = top_k_divergence(reference, keep(broken, targets, 8), targets)
    of_model = top_k_divergence(broken, keep(reference, targets, 8), targets)
    for got in (of_reference, of_model):
        assert np.isnan(got.kld[4]) and np.isfinite(np.delete(got.kld, 4)).all()
    assert np.isfinite(of_reference.nll).all() and of_model.nll[4] == np.inf


@pytest.mark.parametrize("vocab_size, k", [(512, 8), (1536, 12), (32_000, 520), (50_257, 824), (128_256, 1592)])
def test_rows_are_twenty_times_smaller_than_fp16_logits(vocab_size, k):
    assert entries(vocab_size) == k
    size = row_type(vocab_size, k).itemsize
    assert size == 24 + (k + SAMPLES) * (6 if vocab_size <= 65536 else 8)
    assert vocab_size < 1536 or 2 * vocab_size / size >= 20


def test_rows_of_a_large_vocabulary_keep_their_ids():
    logits = torch.zeros(2, 70_000)
    logits[0, 69_999], logits[1, 65_536] = 9.0, 9.0
    assert keep(logits, torch.zeros(2, dtype=torch.int64), 4)["ids"][:, 0].tolist() == [69_999, 65_536]
