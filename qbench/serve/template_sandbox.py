"""A chat template in Jinja's sandbox: no access to Python, but no limit on time and memory either."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from quant.errors import InputError

RESERVED = ("messages", "add_generation_prompt", "bos_token", "eos_token")  # variables that the server sets


class TemplateSandbox:
    """A compiled template. Compiling computes constant expressions, so it needs the limits of rendering.

    text         Jinja
    tokens       texts of `bos_token` and `eos_token`
    most_chars   length limit of a rendered conversation
    raises       InputError for text that is no Jinja
    """

    def __init__(self, text: str, tokens: Mapping[str, str], most_chars: int) -> None:
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        try:
            self._template = environment.from_string(text)
        except TemplateError as error:
            raise InputError(f"the model's chat template cannot be read: {error}") from None
        self._tokens, self._most_chars = tokens, most_chars

    def render(self, messages: Sequence[dict[str, str]], variables: Mapping[str, Any] = MappingProxyType({})) -> str:
        """The conversation, open for the assistant's answer; `variables`: chat_template_kwargs of the request.

        raises   InputError for messages that the template refuses, and for text beyond the length limit
        """
        pieces: list[str] = []
        room = self._most_chars
        try:
            own = {"messages": list(messages), "add_generation_prompt": True, **self._tokens}
            for piece in self._template.generate(dict(variables) | own):
                room -= len(piece)
                if room < 0:
                    break
                pieces.append(piece)
        except Exception as error:  # foreign code, which may fail in any way
            raise InputError(
                f"the model's chat template refuses these messages: {str(error) or type(error).__name__}"
            ) from None
        if room < 0:
            raise InputError(f"the model's chat template writes more than {self._most_chars} characters; shorten them")
        return "".join(pieces)


class Generation(Extension):
    """{% generation %} ... {% endgeneration %} marks the words of an assistant, which count in training alone."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """With the arguments that transformers' filter has. Jinja's own escapes for HTML, which a model has never seen."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _now(fmt: str) -> str:
    return datetime.now().strftime(fmt)
