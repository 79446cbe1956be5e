"""Each way of cutting a text against the loop of the tool that it is named after."""

import numpy as np
import pytest

from qbench.quality.protocols import windows as cut

TOKENS = np.arange(100, 1100)  # each token is its own place plus 100


def scored(windows: list[cut.Window]) -> list[tuple[int, list[int]]]:
    """(token, the tokens that the model has read when it predicts it), in order"""
    return [
        (int(target), window.tokens[: window.first + i + 1].tolist())
        for window in windows
        for i, target in enumerate(window.targets)
    ]


def test_whole_windows_do_not_overlap_and_the_short_tail_is_dropped():
    windows = cut.whole(TOKENS, 300, None)
    assert np.array_equal(np.concatenate([window.tokens for window in windows]), TOKENS[:900])
    assert [len(window.targets) for window in windows] == [299, 299, 299]


def test_limited_windows_are_spread_over_the_text():
    assert [window.tokens[0] - 100 for window in cut.whole(TOKENS, 100, 4)] == [0, 200, 500, 700]


@pytest.mark.parametrize("size", [4, 7, 300, 512])
def test_second_half_is_that_of_llama_perplexity(size):
    expected = []
    for start in range(0, len(TOKENS) - size + 1, size):
        chunk = [7, *TOKENS[start + 1 : start + size].tolist()]  # BOS is written over the first token
        expected += [(chunk[i + 1], chunk[: i + 1]) for i in range(size // 2, size - 1)]
    assert scored(cut.second_half(TOKENS, size, 7, None)) == expected
    plain = scored(cut.second_half(TOKENS, size, None, None))
    assert [token for token, _ in plain] == [token for token, _ in expected] and plain[0][1][0] == 100


@pytest.mark.parametrize("num_tokens", [2, 300, 301, 350, 399, 400, 1000])
@pytest.mark.parametrize("stride", [1, 63, 100, 299])
def test_sliding_is_the_guides_loop(num_tokens, stride):
    tokens, size, expected, before = TOKENS[:num_tokens], 300, [], 0
    for begin in range(0, num_tokens, stride):
        end = min(begin + size, num_tokens)
        labels = [None] * (size - (end - before)) + list(range(before, end))
        labels = labels[-(end - begin) :]  # the tokens that no window before has reached
        # The model shifts labels itself, so a window's first token is never predicted.
        expected += [(int(tokens[i]), tokens[begin:i].tolist()) for i in labels[1:] if i is not None]
        before = end
        if end == num_tokens:
            break
    got = scored(cut.sliding(tokens, size, stride, None))
    assert got == expected
    assert [token for token, _ in got] == tokens[1:].tolist(), "every token but the first, once"
    assert all(len(read) >= min(token - 100, size - stride) for token, read in got)
    assert len(cut.sliding(tokens, size, stride, None)) == cut.num_sliding(num_tokens, size, stride)


@pytest.mark.parametrize("num_tokens", [1, 5, 63, 64, 65, 127, 128, 129, 1000])
def test_rolling_is_that_of_lm_eval(num_tokens):
    lm_eval = pytest.importorskip("lm_eval.utils", reason="lm-eval is not installed")
    tokens, expected = TOKENS[:num_tokens].tolist(), []
    for pair in lm_eval.get_rolling_token_windows(tokens, prefix_token=9, max_seq_len=64, context_len=1):
        context, continuation = lm_eval.make_disjoint_window(pair)
        read = (context + continuation)[-65:][:-1]
        assert len(read) <= 64
        offset = len(read) - len(continuation)
        expected += [(token, read[: offset + i + 1]) for i, token in enumerate(continuation)]
    assert scored(cut.rolling(np.array(tokens), 64, 9, 3)) == expected
    assert {window.block for window in cut.rolling(np.array(tokens), 64, 9, 3)} == {3}
