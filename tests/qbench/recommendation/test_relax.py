import pytest

from qbench.recommendation.candidates import Candidate
from qbench.recommendation.recommend import Relaxation


@pytest.mark.parametrize("asked, enough", [(10, 15), (15, 10)])
def test_half_more_is_equivalent_to_down_to_two_thirds(asked, enough):
    candidate = Candidate.__new__(Candidate)  # it plays no part
    assert Relaxation("context", asked, enough, candidate).change == pytest.approx(0.5)
