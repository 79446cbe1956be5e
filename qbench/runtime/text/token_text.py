"""Texts of single tokens, with the spaces that a decoder drops at the beginning of a text."""

from collections.abc import Sequence
from functools import cached_property

from tokenizers.pre_tokenizers import ByteLevel

from qbench.runtime.text.tokenizer import TextStream, Tokenizer

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"


class TokenTexts:
    """Each token is decoded after another one, so that it is not the first of its text."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer

    @cached_property
    def _anchor(self) -> list[int]:
        return self.tokenizer.encode("a", add_bos=False)[-1:]

    @cached_property
    def _anchor_text(self) -> str:
        return self._decode(self._anchor)

    def text(self, token: int) -> str:
        """Text of the token; INCOMPLETE if it is a part of a character."""
        return self._decode([*self._anchor, token])[len(self._anchor_text) :]

    def name(self, token: int) -> str:
        """Text of the token, or its entry in the vocabulary if it has no text of its own."""
        text = self.text(token)
        return text if text and INCOMPLETE not in text else self.piece(token)

    def bytes_of(self, token: int) -> list[int] | None:
        """Bytes of UTF-8; None if the vocabulary does not say which a part of a character has."""
        text = self.text(token)
        if INCOMPLETE not in text:
            return list(text.encode())
        piece = self.piece(token)
        if len(piece) == 6 and piece.startswith("<0x"):  # byte fallback: <0xE2>
            return [int(piece[3:5], 16)]
        return [BYTE_OF[letter] for letter in piece] if all(letter in BYTE_OF for letter in piece) else None

    def joined(self, tokens: Sequence[int], stream: TextStream | None = None) -> list[str]:
        """A text per token, which together are the text of all; the last token of a character has all of it.

        stream  that decodes them; None: tokens of one that has begun before
        """
        stream = stream or self.stream()
        texts = [stream.push(token) for token in tokens]
        if texts:
            texts[-1] += stream.flush()
        return texts

    def stream(self) -> TextStream:
        return self.tokenizer.stream(self._anchor)

    def _decode(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.decode(tokens, skip_special=False)

    def piece(self, token: int) -> str:
        return self.tokenizer.tokenizer.id_to_token(token) or f"<{token}>"


def _byte_letters() -> dict[str, int]:
    """The letter that byte-level tokenizers write for each byte -> the byte.

    source   GPT-2's encoder.py, bytes_to_unicode: printable bytes are their own letters, others follow from U+0100
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    letters = {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}
    assert letters.keys() == {*ByteLevel.alphabet()}
    return letters


BYTE_OF = _byte_letters()
