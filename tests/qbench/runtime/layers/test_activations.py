"""The functions of feed-forward nets against float64, and each number by itself."""

import pytest
import torch
import torch.nn.functional as F
from support.close import assert_close

from qbench.runtime.layers.activations import ACTIVATIONS, sigmoid

# More than two threads' shares of 32768, and no multiple of a vector.
X = 4 * torch.randn(700, 131, generator=torch.Generator().manual_seed(0))
FUNCTIONS = {
    "sigmoid": (sigmoid, torch.sigmoid),
    "silu": (ACTIVATIONS["silu"], F.silu),
    "relu": (ACTIVATIONS["relu"], F.relu),
    "gelu": (ACTIVATIONS["gelu"], F.gelu),
    "gelu_tanh": (ACTIVATIONS["gelu_tanh"], lambda x: F.gelu(x, approximate="tanh")),
}
every = pytest.mark.parametrize("ours, torchs", FUNCTIONS.values(), ids=FUNCTIONS.keys())


@every
def test_values_match_torch_and_inputs_stay(ours, torchs):
    before = X.clone()
    # Some eight roundings, of numbers up to |x| where 1 + tanh or 1 + erf cancels.
    assert_close(ours(X), torchs(X.double()), atol=8 * 2.0**-24 * max(1.0, X.abs().max().item()))
    assert torch.equal(X, before), "the input is changed"


@every
def test_no_number_depends_on_its_neighbours(ours, torchs):
    whole = ours(X)
    assert all(torch.equal(ours(X[row]), whole[row]) for row in range(0, 700, 7))
    assert all(torch.equal(ours(X[3, :size]), whole[3, :size]) for size in (1, 3, 63))
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert torch.equal(ours(X), whole)
    finally:
        torch.set_num_threads(threads)


@every
def test_far_from_zero_and_nan(ours, torchs):
    far = torch.tensor([-1000.0, -200.0, 200.0, 1000.0])
    assert_close(ours(far), torchs(far.double()), atol=2.0**-126)  # the least normal number
    assert ours(torch.tensor([torch.nan])).isnan().all()
    assert ours(torch.tensor([torch.inf])) == torchs(torch.tensor([torch.inf]))
    assert ours(torch.empty(0, 3)).shape == (0, 3)
