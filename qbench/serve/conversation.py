"""A conversation as tokens: control tokens are the template's own, and never words of a message."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol

from qbench.runtime.text.tokenizer import Tokenizer, check_prompt_length, check_utf8

# Characters that Unicode leaves to private use; each replaces one text while the template is rendered.
STAND_INS = range(0xF0000, 0xFFFFE)


class Template(Protocol):
    def render(self, messages: Sequence[dict[str, str]], variables: Mapping[str, Any]) -> str: ...


def conversation_tokens(
    template: Template,
    tokenizer: Tokenizer,
    messages: Sequence[dict[str, str]],
    most_tokens: int | None = None,
    variables: Mapping[str, Any] = MappingProxyType({}),
) -> list[int]:
    """The conversation, open for the assistant's answer.

    If a message or a variable holds the text of a control token, the stretch around it between two of the template's
    control tokens is cut as words. All else is cut as if the rendered text were encoded as it is.
    most_tokens  a rendered text of surely more is not cut; None: every text is cut
    variables    JSON values that the template reads in addition to the messages
    raises   InputError for messages that the template refuses, and for text that is not UTF-8 or too long
    """
    stand_ins = _StandIns(tokenizer, [*_texts(messages), *_texts(variables)])
    text = template.render(
        [{key: stand_ins.hide(text) for key, text in message.items()} for message in messages],
        {name: stand_ins.hide_all(value) for name, value in variables.items()},
    )
    if most_tokens is not None:
        check_prompt_length(tokenizer, text, most_tokens)
    if not stand_ins.texts:
        return tokenizer.encode(text)
    ids: list[int] = []
    for stretch in stand_ins.stretches(text):
        words = stand_ins.reveal(stretch)
        ids += tokenizer.encode_words(words) if words != stretch else tokenizer.encode(stretch, add_bos=False)
    return tokenizer.begun(ids)


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _texts(each)


class _StandIns:
    """texts   character -> the text of a control token that it replaces, of some message or variable"""

    def __init__(self, tokenizer: Tokenizer, texts: Iterable[str]) -> None:
        self.tokenizer = tokenizer
        self.texts: dict[str, str] = {}
        taken = {character for text in texts for character in text}
        self._free = (chr(code) for code in STAND_INS if chr(code) not in taken)

    def hide(self, text: str) -> str:
        check_utf8(text)
        parts, end = [], 0
        for start, stop in self.tokenizer.control_spans(text):
            parts += [text[end:start], self._stand_in(text[start:stop])]
            end = stop
        return "".join([*parts, text[end:]])

    def hide_all(self, value: Any) -> Any:
        """A JSON value whose texts are hidden, names included."""
        if isinstance(value, str):
            return self.hide(value)
        if isinstance(value, dict):
            return {self.hide(name): self.hide_all(each) for name, each in value.items()}
        return [self.hide_all(each) for each in value] if isinstance(value, list) else value

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
