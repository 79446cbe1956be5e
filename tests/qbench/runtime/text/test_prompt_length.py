"""A text that cannot be a prompt is refused, and little of it is cut into tokens for that."""

import pytest
from support.byte_tokenizer import byte_tokenizer

from qbench.runtime.text.tokenizer import FIRST_CHARS, SPARE_TOKENS, Tokenizer, check_prompt_length
from quant.errors import InputError

MOST = 50


class Counted(Tokenizer):
    """Counts the characters that it cuts."""

    num_chars = 0
    longest_token = 1000

    def encode(self, text, add_bos=None):
        self.num_chars += len(text)
        return super().encode(text, add_bos)


@pytest.fixture
def tokenizer() -> Counted:
    return Counted(byte_tokenizer().info)


@pytest.mark.parametrize("length", [1, MOST, FIRST_CHARS * MOST])
def test_a_text_that_may_fit_is_left_to_the_engine(tokenizer, length):
    check_prompt_length(tokenizer, "x" * length, MOST)
    assert tokenizer.num_chars == 0


@pytest.mark.parametrize("length", [FIRST_CHARS * MOST + 1, 1000 * MOST])
def test_a_text_that_is_too_long_is_cut_only_at_its_beginning(tokenizer, length):
    with pytest.raises(InputError, match=f"the prompt has {length} characters.*expected at most {MOST} tokens"):
        check_prompt_length(tokenizer, "x" * length, MOST)
    assert tokenizer.num_chars == FIRST_CHARS * MOST


def test_a_text_of_more_than_the_longest_tokens_is_not_cut_at_all(tokenizer):
    with pytest.raises(InputError, match="shorten it"):
        check_prompt_length(tokenizer, "x" * (1000 * MOST + 1), MOST)
    assert tokenizer.num_chars == 0


def test_long_tokens_are_not_taken_for_many(tokenizer, monkeypatch):
    monkeypatch.setattr(tokenizer, "encode", lambda text: list(range(len(text) // 100)))
    check_prompt_length(tokenizer, "x" * (MOST * 100), MOST)
    with pytest.raises(InputError):
        check_prompt_length(tokenizer, "x" * ((MOST + SPARE_TOKENS + 1) * 100 * 2), MOST)


def test_the_longest_token_of_a_vocabulary():
    assert Tokenizer(byte_tokenizer().info).longest_token == max(map(len, byte_tokenizer().tokenizer.get_vocab()))
