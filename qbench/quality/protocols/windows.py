"""Windows of a token stream: tokens that the model reads, and predictions that a protocol scores."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Window:
    """One forward pass: the logits at position first + i are scored on targets[i]."""

    tokens: np.ndarray  # [T] int64
    first: int
    targets: np.ndarray  # [S] int64; first + S <= T
    block: int  # which part of the text its sums belong to


def spread(total: int, limit: int | None) -> np.ndarray:
    """Indices of at most `limit` of `total` things, evenly over all of them."""
    num = min(limit or total, total)
    return np.arange(num) * total // num


def whole(tokens: np.ndarray, size: int, limit: int | None) -> list[Window]:
    """Windows side by side, every token but a window's first scored; a last shorter one is dropped."""
    windows = tokens[: len(tokens) // size * size].reshape(-1, size)
    return [Window(windows[i], 0, windows[i, 1:], block) for block, i in enumerate(spread(len(windows), limit))]


def second_half(tokens: np.ndarray, size: int, bos: int | None, limit: int | None) -> list[Window]:
    """Windows side by side, scored from the token after the middle on.

    bos      takes the place of each window's first token; None: the windows stay as they are
    source   llama.cpp, tools/perplexity/perplexity.cpp: logits from size / 2 on, each scored on the token after it
    """
    windows = tokens[: len(tokens) // size * size].reshape(-1, size).copy()
    if bos is not None:
        windows[:, 0] = bos
    middle = size // 2
    return [
        Window(windows[i], middle, windows[i, middle + 1 :], block)
        for block, i in enumerate(spread(len(windows), limit))
    ]


def sliding(tokens: np.ndarray, size: int, stride: int, limit: int | None) -> list[Window]:
    """Overlapping windows, each scored on the tokens after the window before: at least size - stride tokens of context.

    source   the "strided" recipe of Hugging Face's guide "Perplexity of fixed-length models"
    """
    windows = []
    for block, i in enumerate(spread(num_sliding(len(tokens), size, stride), limit)):
        start, end = i * stride, min(i * stride + size, len(tokens))
        scored = 1 if i == 0 else start - stride + size  # the first token that no window before predicts
        windows.append(Window(tokens[start:end], scored - 1 - start, tokens[scored:end], block))
    return windows


def num_sliding(num_tokens: int, size: int, stride: int) -> int:
    """Windows until one reaches the end."""
    return 1 + -(-max(0, num_tokens - size) // stride)


def rolling(tokens: np.ndarray, size: int, prefix: int, block: int) -> list[Window]:
    """A document whole, its first token predicted from `prefix`; the last window reaches back so that it is full.

    source   lm-eval, loglikelihood_rolling with one token of context: get_rolling_token_windows, make_disjoint_window
    """
    read = np.concatenate([[prefix], tokens])  # read[i] is the token before tokens[i]
    windows = []
    for start in range(0, len(tokens), size):
        end = min(start + size, len(tokens))
        reach = max(0, end - size)  # of the tokens before
        windows.append(Window(read[reach:end], start - reach, tokens[start:end], block))
    return windows
