"""Whether a text can be a prompt, found without cutting all of a text that is far too long."""

from qbench.runtime.text.tokenizer import Tokenizer
from quant.errors import InputError

FIRST_CHARS = 8  # per token of the limit; English has about 4 characters per token
SPARE_TOKENS = 16  # the end of a part may be cut into more tokens than inside the whole text


def check_prompt_length(tokenizer: Tokenizer, text: str, most_tokens: int) -> None:
    """Refuse a text of surely more than `most_tokens` tokens.

    Parts from its beginning are cut, each twice as long as the one before, until one has too many tokens; a text of
    more characters than the longest tokens hold is refused as it is.
    raises   InputError
    """
    if len(text) > most_tokens * tokenizer.longest_token:
        raise too_long(f"{len(text)} characters", most_tokens)
    length = most_tokens * FIRST_CHARS
    while length < len(text):
        count = len(tokenizer.encode(text[:length]))
        if count > most_tokens + SPARE_TOKENS:
            raise too_long(f"{len(text)} characters, the first {length} of them {count} tokens", most_tokens)
        length *= 2


def too_long(size: str, most_tokens: int) -> InputError:
    return InputError(f"the prompt has {size}, expected at most {most_tokens} tokens with its answer; shorten it")
