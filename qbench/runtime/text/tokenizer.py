"""Text to token ids and back, whole or as it streams, and prompts of too many tokens."""

from collections.abc import Sequence
from functools import cached_property

from tokenizers import Tokenizer as JsonTokenizer

from qbench.runtime.token_kinds import json_tokenizer
from quant.errors import InputError
from quant.panics import panics_as
from quant.source import TokenizerInfo


class Tokenizer:
    """A `tokenizers` JSON tokenizer that adds BOS as the model expects, and never twice."""

    def __init__(self, info: TokenizerInfo) -> None:
        self.tokenizer, self.info = json_tokenizer(info), info

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.get_vocab_size(with_added_tokens=True)

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token."""
        return max(map(len, self.tokenizer.get_vocab(with_added_tokens=True)), default=1)

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]:
        """Token ids of `text`; add_bos None asks the tokenizer's own convention, True requires a BOS token.

        Other threads run meanwhile.
        raises   InputError for text that has no UTF-8: lone surrogates, as JSON and a command line may bring them
        """
        check_utf8(text)
        return self.begun(_cut(self.tokenizer, text), add_bos)

    def begun(self, ids: list[int], add_bos: bool | None = None) -> list[int]:
        """A text's tokens behind the BOS token that `encode` would put there."""
        bos = self.info.bos_token_id
        if not (self.info.add_bos if add_bos is None else add_bos):
            return ids
        if bos is None:
            raise InputError("this tokenizer has no BOS token; ask for none")
        return ids if ids[:1] == [bos] else [bos, *ids]

    def encode_words(self, text: str) -> list[int]:
        """Without BOS, and with no control token: the text of one is cut like any other text."""
        ids = _cut(self._of_words, text)
        if len(text) < 2 or self._control.keys().isdisjoint(ids):
            return ids
        # A vocabulary of pieces may hold a control token's text as one of them, which no half of it is.
        middle = len(text) // 2
        return self.encode_words(text[:middle]) + self.encode_words(text[middle:])

    def control_spans(self, text: str) -> list[tuple[int, int]]:
        """Where `encode` reads control tokens: their first character and the one behind their last, in order."""
        if not self._has_normal_forms and not any(content in text for content in self._control.values()):
            return []
        with panics_as(_cannot_cut):
            [found] = self.tokenizer.encode_batch([text], add_special_tokens=False)
        return [span for token, span in zip(found.ids, found.offsets, strict=True) if token in self._control]

    @cached_property
    def _control(self) -> dict[int, str]:
        """Control token -> its name: tokens without text, such as the ends of turns and texts"""
        added = self.tokenizer.get_added_tokens_decoder()
        return {token: each.content for token, each in added.items() if each.special}

    @cached_property
    def _has_normal_forms(self) -> bool:
        """Whether text of other characters may be read as a control token, too."""
        added = self.tokenizer.get_added_tokens_decoder().values()
        return self.tokenizer.normalizer is not None and any(each.special and each.normalized for each in added)

    @cached_property
    def _of_words(self) -> JsonTokenizer:
        """One more, as this is a state of a tokenizer and others use the first meanwhile."""
        tokenizer = json_tokenizer(self.info)
        tokenizer.encode_special_tokens = True
        return tokenizer

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        with panics_as(_cannot_cut):
            return self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special)

    def stream(self, prompt: Sequence[int] = ()) -> "TextStream":
        """A decoder of the tokens that follow `prompt`, one at a time."""
        return TextStream(self, prompt)


def _cut(tokenizer: JsonTokenizer, text: str) -> list[int]:
    # A batch, even of one, is cut without Python's lock, and without offsets in half of the time.
    with panics_as(_cannot_cut):
        return tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids


def _cannot_cut(panic: str) -> InputError:
    return InputError(f"the model's tokenizer cannot cut or join this text: {panic}; take another tokenizer.json")


def check_utf8(text: str) -> None:
    """raises InputError"""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        wrong = f"U+{ord(text[error.start]):04X}"
        raise InputError(f"the text is not UTF-8: {wrong} at character {error.start}; convert it") from None


class TextStream:
    """Text of tokens as they arrive: `push` returns the part that became certain, `flush` the rest.

    A character may span tokens (bytes of UTF-8), and a token's text may depend on the one before it (the
    space that a first token drops), so a short window of tokens is decoded together.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.window = list(prompt[-1:])  # tokens already given out, for their context, then the pending ones
        self.num_told = len(self.window)

    def push(self, token: int) -> str:
        """The new text, or "" while a character is incomplete."""
        self.window.append(token)
        text = self._pending()
        if text.endswith("\N{REPLACEMENT CHARACTER}"):
            return ""
        if text:
            self.window = self.window[self.num_told :]
            self.num_told = len(self.window)
        return text

    def flush(self) -> str:
        """The text held back at the end; bytes that form no character become U+FFFD."""
        text = self._pending()
        self.window, self.num_told = [], 0
        return text

    def _pending(self) -> str:
        told = self.tokenizer.decode(self.window[: self.num_told])
        return self.tokenizer.decode(self.window)[len(told) :]


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
