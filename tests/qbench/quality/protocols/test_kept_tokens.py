import numpy as np
import pytest

from qbench.quality.protocols.scoring import kept_tokens
from quant.source import TokenizerInfo

TOKENIZER = TokenizerInfo("{}", 0, (1,), True)
TOKENS = np.arange(5)


def never() -> np.ndarray:
    raise AssertionError("encoded again")


def test_a_text_is_encoded_once(tmp_path):
    first = kept_tokens(tmp_path, TOKENIZER, "text", True, lambda: TOKENS)
    again = kept_tokens(tmp_path, TOKENIZER, "text", True, never)
    assert first.tolist() == again.tolist() == TOKENS.tolist() and again.dtype == np.int64
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]


@pytest.mark.parametrize(
    "other",
    [(TOKENIZER, "another", True), (TOKENIZER, "text", False), (TokenizerInfo("{}", 0, (1,), False), "text", True)],
    ids=["text", "special tokens", "BOS"],
)
def test_other_texts_are_tokenized_again(tmp_path, other):
    kept_tokens(tmp_path, TOKENIZER, "text", True, lambda: TOKENS)
    assert kept_tokens(tmp_path, *other, lambda: TOKENS + 1).tolist() == (TOKENS + 1).tolist()


def test_without_a_folder_nothing_is_kept():
    assert kept_tokens(None, TOKENIZER, "text", True, lambda: TOKENS) is TOKENS
