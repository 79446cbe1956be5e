"""The oracle, the draw's distribution, and refusals; proof/test_check.py holds the kernel against the oracle."""

import pytest
import torch

from gpu_kernels.fused.sample import NO_TOKEN, Operands, kept_from, sample, sample_ref
from gpu_kernels.fused.sample_problems import agrees
from qbench.runtime.text.sampling import Sampling, probabilities

# logits, temperature, top_k, top_p, min_p, the ids that are kept
KEPT = {
    "all": ([1.0, 2.0, 0.0], 1.0, 0, 1.0, 0.0, [0, 1, 2]),
    "two likeliest": ([1.0, 2.0, 0.0], 1.0, 2, 1.0, 0.0, [0, 1]),
    "equals of the second": ([1.0, 2.0, 1.0, 0.0], 1.0, 2, 1.0, 0.0, [0, 1, 2]),
    "half of the mass": ([0.0, 5.0, 0.0], 1.0, 0, 0.5, 0.0, [1]),
    "half of three alike": ([0.0, 0.0, 0.0], 1.0, 0, 0.5, 0.0, [0, 1, 2]),
    "hot": ([0.0, 5.0, 4.0], 100.0, 0, 0.5, 0.0, [1, 2]),
    "p of what k leaves": ([3.0, 2.0, 2.5, -9.0], 1.0, 2, 0.7, 0.0, [0, 2]),
    "k past the end": ([3.0, 2.0], 1.0, 9, 1.0, 0.0, [0, 1]),
    "as likely as half the likeliest": ([1.0, 2.0, 1.5, 0.0], 1.0, 0, 1.0, 0.5, [1, 2]),
    "the likeliest alone": ([1.0, 2.0, 2.0], 1.0, 0, 1.0, 1.0, [1, 2]),
    "what p leaves is likely enough": ([3.0, 2.0, 1.0], 1.0, 0, 0.7, 0.05, [0, 1]),
    "likely by heat": ([3.0, 2.0, 1.0], 4.0, 0, 1.0, 0.7, [0, 1]),
    "colder than float32 can divide by": ([3.0, 2.0, 3.0], 1e-40, 0, 1.0, 0.5, [0, 2]),
}


def one(logits, uniform=0.5, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, device="cpu"):
    """Operands of one row for each value of `uniform`."""
    uniform = torch.tensor(uniform).reshape(-1)
    settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    tensors = {name: torch.tensor([value] * len(uniform)) for name, value in settings.items()}
    tensors["top_k"] = tensors["top_k"].int()
    rows = torch.tensor([logits] * len(uniform))
    return {name: value.to(device) for name, value in ({"logits": rows, "uniform": uniform} | tensors).items()}


@pytest.mark.parametrize("logits, temperature, top_k, top_p, min_p, kept", KEPT.values(), ids=KEPT.keys())
def test_only_kept_tokens_are_drawn(run, logits, temperature, top_k, top_p, min_p, kept):
    """By the oracle and by the kernel, at every place of a draw."""
    row = torch.tensor(logits).double()
    cut = kept_from(row, temperature, top_k, top_p, min_p)
    assert (row >= cut).nonzero().flatten().tolist() == kept
    operands = one(logits, [i / 12 for i in range(12)], temperature, top_k, top_p, min_p, device=run.device)
    token, cut = run(sample, Operands(**operands), impl="triton")
    assert set(token.tolist()) == set(kept)
    assert agrees((token, cut), operands)


def test_ref_keeps_the_same_tokens_as_the_runtime():
    """No two logits are equal, where the two differ by design."""
    logits = torch.randperm(300, generator=torch.Generator().manual_seed(0)).float() / 32
    for top_k, top_p, min_p in ((0, 0.9, 0.0), (17, 1.0, 0.0), (40, 0.5, 0.0), (1, 1.0, 0.0), (40, 0.9, 0.2)):
        theirs = probabilities(logits, Sampling(temperature=0.7, top_k=top_k, top_p=top_p, min_p=min_p))
        assert torch.equal(logits.double() >= kept_from(logits.double(), 0.7, top_k, top_p, min_p), theirs > 0)


def test_ref_draws_by_the_masses():
    logits = [0.0, 1.0, 2.0]
    edges = torch.tensor(logits).double().softmax(0).cumsum(0)
    for token in range(3):
        low, high = (0.0 if token == 0 else edges[token - 1].item()), edges[token].item()
        got, _ = sample_ref(Operands(**one(logits, [low + 1e-6, high - 1e-6])))
        assert got.tolist() == [token, token]


def test_greedy_takes_the_first_of_equals(run):
    operands = one([0.0, 7.0, -0.0, 7.0], [0.0, 0.99], 0.0, 2, 0.5, device=run.device)
    token, cut = run(sample, Operands(**operands), impl="triton")
    assert token.tolist() == [1, 1] and cut.tolist() == [7.0, 7.0]


def test_zeros_of_both_signs_are_equal(run):
    operands = one([-0.0, 0.0, -1.0], [0.1, 0.9], 1.0, 1, 1.0, device=run.device)
    token, _ = run(sample, Operands(**operands), impl="triton")
    assert token.tolist() == [0, 1]


@pytest.mark.parametrize("bad", [[0.0, torch.nan], [torch.inf, 0.0], [-torch.inf, -torch.inf]], ids=str)
def test_rows_without_a_likeliest(run, bad):
    for operands in (one(bad, device=run.device), one(bad, temperature=0.0, device=run.device)):
        token, cut = run(sample, Operands(**operands), impl="triton")
        assert token.tolist() == [NO_TOKEN] and cut.isnan().all()
        assert sample_ref(Operands(**operands))[0].tolist() == [NO_TOKEN]


def test_minus_infinity_is_never_drawn(run):
    operands = one([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf], [0.0, 0.49, 0.51, 0.99], device=run.device)
    token, _ = run(sample, Operands(**operands), impl="triton")
    assert token.tolist() == [1, 1, 3, 3]


def test_cpu_default_is_the_reference():
    operands = one([1.0, 2.0, 0.0], [0.1, 0.9], 1.0, 2, 0.9)
    token, cut = sample(Operands(**operands))
    assert torch.equal(token, sample_ref(Operands(**operands))[0]) and agrees((token, cut), operands)


def test_agrees_finds_wrong_draws():
    operands = one([1.0, 2.0, 0.0, -3.0], [0.5], 1.0, 0, 0.9)
    token, cut = sample(Operands(**operands))
    assert agrees((token, cut), operands)
    assert not agrees((token + 2, cut), operands)
    assert not agrees((token, torch.tensor([-3.0])), operands)
    assert not agrees((token, cut), operands | {"min_p": torch.tensor([0.6])})
    assert not agrees((token, torch.tensor([2.0])), operands)
    assert not agrees((torch.tensor([0]), cut), operands | {"uniform": torch.tensor([0.99])})


def test_no_rows():
    operands = {name: value[:0] for name, value in one([1.0]).items()}
    assert sample(Operands(**operands))[0].shape == (0,)


REFUSED = {
    "integers": (dict(logits=torch.zeros(1, 3, dtype=torch.int32)), TypeError, "got logits torch.int32"),
    "float64": (dict(uniform=torch.zeros(1).double()), TypeError, "got uniform torch.float64, expected torch.float32"),
    "long top_k": (dict(top_k=torch.zeros(1, dtype=torch.int64)), TypeError, "got top_k torch.int64"),
    "no tokens": (dict(logits=torch.zeros(1, 0)), ValueError, r"got logits \[1, 0\]"),
    "columns": (dict(logits=torch.zeros(3, 2).T[:1]), ValueError, "dense rows"),
    "no seed": (
        dict(uniform=None, position=torch.zeros(1).long()),
        ValueError,
        "expected uniform, or seed and pos",
    ),
    "seed and uniform": (dict(seed=torch.zeros(1).long()), ValueError, "got some of both or none"),
    "another B": (dict(top_p=torch.ones(2)), ValueError, r"got top_p \[2\], expected \[1\]"),
    "min_p in two": (dict(min_p=torch.zeros(2)), ValueError, r"got min_p \[2\], expected \[1\]"),
    "two devices": (dict(temperature=torch.ones(1, device="meta")), ValueError, "got temperature on meta"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        sample(Operands(**one([1.0, 2.0, 3.0]) | change))
