"""Log-probabilities against torch's, and their order."""

import pytest
import torch
from support.close import assert_close

from qbench.runtime.text.sampling import log_probabilities
from quant.errors import InputError

LOGITS = torch.tensor([0.3, 2.0, -1.0, 1.1, 0.0, 1.9])


@pytest.mark.parametrize("top", [0, 1, 3, 6])
def test_chosen_and_likeliest(top):
    got = log_probabilities(LOGITS, 3, top)
    expected = -torch.nn.functional.cross_entropy(LOGITS.double()[None], torch.tensor([3]))
    assert_close(torch.tensor(got.chosen, dtype=torch.float64), expected, rtol=8 * 2**-53)
    assert [token for token, _ in got.top] == [1, 5, 3, 0, 4, 2][:top]
    assert all(value == got.chosen for token, value in got.top if token == 3)
    assert abs(sum(torch.tensor([value for _, value in got.top], dtype=torch.float64).exp()) - 1) < 1e-14 or top < 6


@pytest.mark.parametrize("top", [-1, 7])
def test_more_than_there_are(top):
    with pytest.raises(InputError, match=f"{top} log-probabilities asked for, expected 0 to 6"):
        log_probabilities(LOGITS, 0, top)
