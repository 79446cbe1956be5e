"""A conversation as tokens: control tokens are the template's own, and never words of a message."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from qbench.runtime.text.prompt_length import check_prompt_length
from qbench.runtime.text.tokenizer import Tokenizer, check_utf8

# Characters that Unicode leaves to private use; each replaces one text while the template is rendered.
STAND_INS = range(0xF0000, 0xFFFFE)


class Template(Protocol):
    def render(self, messages: Sequence[dict[str, str]]) -> str: ...


def conversation_tokens(
    template: Template, tokenizer: Tokenizer, messages: Sequence[dict[str, str]], most_tokens: int | None = None
) -> list[int]:
    """The conversation, open for the assistant's answer.

    If a message holds the text of a control token, the stretch around it between two of the template's control tokens
    is cut as words. All else is cut as if the rendered text were encoded as it is.
    most_tokens  a rendered text of surely more is not cut; None: every text is cut
    raises   InputError for messages that the template refuses, and for text that is not UTF-8 or too long
    """
    stand_ins = _StandIns(tokenizer, messages)
    hidden = [{key: stand_ins.hide(text) for key, text in message.items()} for message in messages]
    text = template.render(hidden)
    if most_tokens is not None:
        check_prompt_length(tokenizer, text, most_tokens)
    if not stand_ins.texts:
        return tokenizer.encode(text)
    ids: list[int] = []
    for stretch in stand_ins.stretches(text):
        words = stand_ins.reveal(stretch)
        ids += tokenizer.encode_words(words) if words != stretch else tokenizer.encode(stretch, add_bos=False)
    return tokenizer.begun(ids)


class _StandIns:
    """texts   character -> the text of a control token in some message that it replaces"""

    def __init__(self, tokenizer: Tokenizer, messages: Sequence[Mapping[str, str]]) -> None:
        self.tokenizer = tokenizer
        self.texts: dict[str, str] = {}
        taken = {character for message in messages for text in message.values() for character in text}
        self._free = (chr(code) for code in STAND_INS if chr(code) not in taken)

    def hide(self, text: str) -> str:
        check_utf8(text)
        parts, end = [], 0
        for start, stop in self.tokenizer.control_spans(text):
            parts += [text[end:start], self._stand_in(text[start:stop])]
            end = stop
        return "".join([*parts, text[end:]])

    def _stand_in(self, text: str) -> str:
        known = next((character for character, own in self.texts.items() if own == text), None)
        if known is None:
            known = next(self._free)
            self.texts[known] = text
        return known

    def reveal(self, text: str) -> str:
        return text.translate({ord(character): own for character, own in self.texts.items()})

    def stretches(self, text: str) -> Iterator[str]:
        """The rendered text, cut at the template's control tokens; each is a stretch of its own."""
        end = 0
        for start, stop in self.tokenizer.control_spans(text):
            yield text[end:start]
            yield text[start:stop]
            end = stop
        yield text[end:]
