import numpy as np
import pytest

from qbench.harness.protocol import cut_windows, whole_windows
from quant.errors import InputError

TOKENS = np.arange(1000)


def test_name_tells_the_window_that_the_context_allows():
    assert whole_windows(TOKENS, "text", context=128).name == "windows-128"
    assert whole_windows(np.arange(5000), "text", context=4096).name == "gptq-2048"
    assert whole_windows(TOKENS, "text", context=4096).name == "windows-1000"


def test_windows_do_not_overlap_and_the_short_tail_is_dropped():
    windows = cut_windows(TOKENS, whole_windows(TOKENS, "text", context=300))
    assert windows.shape == (3, 300)
    assert np.array_equal(windows.reshape(-1), TOKENS[:900])


def test_limited_windows_are_spread_over_the_text():
    protocol = whole_windows(TOKENS, "text", context=100, max_windows=4)
    assert cut_windows(TOKENS, protocol)[:, 0].tolist() == [0, 200, 500, 700]


def test_more_windows_than_the_text_has_are_the_whole_text():
    assert whole_windows(TOKENS, "text", 100, max_windows=99) == whole_windows(TOKENS, "text", 100)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(whole_windows(TOKENS, "text", 50), id="window"),
        pytest.param(whole_windows(TOKENS, "other", 100), id="data"),
        pytest.param(whole_windows(TOKENS + 1, "text", 100), id="tokenizer or BOS"),
        pytest.param(whole_windows(TOKENS, "text", 100, 3), id="how many windows"),
    ],
)
def test_unlike_protocols_have_unlike_hashes(other):
    protocol = whole_windows(TOKENS, "text", 100)
    assert protocol.describe()["hash"] == whole_windows(TOKENS, "text", 100).describe()["hash"]
    assert protocol.describe()["hash"] != other.describe()["hash"]


def test_a_text_too_short_to_predict_anything():
    with pytest.raises(InputError, match="1 tokens"):
        whole_windows(TOKENS[:1], "a", 100)


def test_no_windows_asked_for():
    with pytest.raises(InputError, match="got 0"):
        whole_windows(TOKENS, "text", 100, max_windows=0)
