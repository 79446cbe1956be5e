import pytest

from qbench.measure.launch import Launch


@pytest.mark.parametrize("peak", [{}, {"peak_rss_bytes": [4096, 8192]}])
def test_a_phase_is_a_key_and_the_peak_may_be_absent(peak):
    document = {"pp": [[0.5, 0.25], [0.5]], "tg": [[1.0], [2.0]], **peak}
    launch = Launch.from_json(document)
    assert launch.to_json() == document and list(launch.to_json()) == list(document)
    assert list(launch.seconds) == ["pp", "tg"] and launch.peak_rss_bytes == peak.get("peak_rss_bytes")


def test_a_launch_that_is_no_object_is_named():
    with pytest.raises(ValueError, match="Launch: got list, expected an object"):
        Launch.from_json([[0.5]])
