"""Perplexity protocols: how a text becomes scored tokens, named and hashed so that unlike numbers never meet."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from quant.errors import InputError

GPTQ_WINDOW = 2048


@dataclass(frozen=True, slots=True)
class Protocol:
    """Everything that changes a perplexity besides the model."""

    name: str
    window: int  # tokens a forward pass sees
    stride: int  # tokens from one window's start to the next one's
    scored: str  # "all": every token that a window predicts, so all but its first
    bos: str  # "text-start": where the tokenizer adds one, once, before the text
    dtype: str  # of the logits; their softmax is summed in float64
    num_windows: int  # windows scored, spread evenly over the text
    text_windows: int  # windows the text has; a last shorter one is dropped
    data_sha256: str  # of the text
    tokens_sha256: str  # of the token ids: tokenizer and BOS as they come out

    @property
    def hash(self) -> str:
        """16 hex digits; rows join only where this is equal."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]

    def describe(self) -> dict[str, Any]:
        """What a record keeps: every field, and the hash."""
        return {**asdict(self), "hash": self.hash}


def whole_windows(tokens: np.ndarray, text: str, context: int, max_windows: int | None = None) -> Protocol:
    """Non-overlapping windows, all predicted tokens scored: `gptq-2048`, or `windows-N` where N tokens are the most.

    tokens    [T] int64, BOS included
    raises    InputError for fewer than two tokens or max_windows < 1
    source    the evaluation loop of Frantar et al. 2022, arXiv:2210.17323, section 4
    """
    if len(tokens) < 2:
        raise InputError(f"the text has {len(tokens)} tokens, at least 2 are needed to predict one; give a longer text")
    if max_windows is not None and max_windows < 1:
        raise InputError(f"the number of windows must be 1 or more, got {max_windows}")
    window = min(GPTQ_WINDOW, context, len(tokens))
    text_windows = len(tokens) // window
    return Protocol(
        name=f"gptq-{window}" if window == GPTQ_WINDOW else f"windows-{window}",
        window=window,
        stride=window,
        scored="all",
        bos="text-start",
        dtype="float32",
        num_windows=min(max_windows or text_windows, text_windows),
        text_windows=text_windows,
        data_sha256=hashlib.sha256(text.encode()).hexdigest(),
        tokens_sha256=tokens_sha256(tokens),
    )


def tokens_sha256(tokens: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(tokens, dtype="<i8")).hexdigest()


def cut_windows(tokens: np.ndarray, protocol: Protocol) -> np.ndarray:
    """The windows that the protocol scores, [num_windows, window] int64, spread evenly over the text."""
    windows = tokens[: protocol.text_windows * protocol.window].reshape(-1, protocol.window)
    picked = np.arange(protocol.num_windows) * protocol.text_windows // protocol.num_windows
    return windows[picked]
