"""Text to token ids and back, whole or as it streams."""

from collections.abc import Sequence

from tokenizers import Tokenizer as JsonTokenizer

from quant.errors import InputError
from quant.source import TokenizerInfo


class Tokenizer:
    """A `tokenizers` JSON tokenizer that adds BOS as the model expects, and never twice."""

    def __init__(self, info: TokenizerInfo) -> None:
        try:
            self.tokenizer = JsonTokenizer.from_str(info.json)
        except Exception as error:  # `tokenizers` raises bare Exception for any malformed JSON
            raise InputError(f"the tokenizer cannot be read: {error}; expected a tokenizer.json") from None
        self.info = info

    @property
    def vocab_size(self) -> int:
        return self.tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, add_bos: bool | None = None) -> list[int]:
        """Token ids of `text`; add_bos None asks the tokenizer's own convention, True requires a BOS token."""
        ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        bos = self.info.bos_token_id
        if not (self.info.add_bos if add_bos is None else add_bos):
            return ids
        if bos is None:
            raise InputError("this tokenizer has no BOS token; ask for none")
        return ids if ids[:1] == [bos] else [bos, *ids]

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        return self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special)

    def stream(self, prompt: Sequence[int] = ()) -> "TextStream":
        """A decoder of the tokens that follow `prompt`, one at a time."""
        return TextStream(self, prompt)


class TextStream:
    """Text of tokens as they arrive: `push` returns what became certain, `flush` the rest.

    A character may span tokens (bytes of UTF-8), and a token's text may depend on the one before it (the
    space that a first token drops), so a short window of tokens is decoded together.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        self.window = list(prompt[-1:])  # tokens told already, for their context, then the pending ones
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
