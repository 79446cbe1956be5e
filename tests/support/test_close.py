import numpy as np
import pytest
import torch
from support.close import assert_close


def test_equal_passes():
    assert_close(torch.tensor([1.0, np.inf]), np.array([1.0, np.inf]))


@pytest.mark.parametrize(
    "got, expected",
    [
        pytest.param([1.0, 2.0], [1.0], id="other shape"),
        pytest.param([1.0, np.nan], [1.0, 2.0], id="NaN where a number belongs"),
        pytest.param([1.0, 2.0], [1.0, np.nan], id="number where NaN belongs"),
        pytest.param([np.inf], [-np.inf], id="inf of the other sign"),
        pytest.param([1.0 + 2e-6], [1.0], id="just past the tolerance"),
    ],
)
def test_unequal_fails(got, expected):
    with pytest.raises(AssertionError):
        assert_close(got, expected, rtol=1e-6)


def test_within_tolerance_passes():
    assert_close([1.0 + 0.5e-6], [1.0], rtol=1e-6)
