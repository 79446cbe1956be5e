"""A conversation as the text that its model was trained on, by the Jinja template that the model brings."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from jinja2 import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from qbench.runtime.text.tokenizer import Tokenizer
from quant.errors import InputError
from quant.present import present


class ChatTemplate:
    """The template comes from whoever made the model, so it runs in Jinja's sandbox.

    raises   InputError for one that is no Jinja
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        info = tokenizer.info
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
        )
        environment.filters["tojson"] = _to_json
        environment.globals |= {"raise_exception": _refuse, "strftime_now": _now}
        try:
            self._template = environment.from_string(present(info.chat_template))
        except TemplateError as error:
            raise InputError(f"the model's chat template cannot be read: {error}") from None
        ids = {"bos_token": info.bos_token_id, "eos_token": info.eos_token_id}
        self._tokens = {
            name: "" if token is None else tokenizer.tokenizer.id_to_token(token) or "" for name, token in ids.items()
        }

    def render(self, messages: Sequence[dict[str, str]]) -> str:
        """The conversation, open for the assistant's answer.

        raises   InputError for messages that the template refuses
        """
        try:
            return self._template.render(messages=list(messages), add_generation_prompt=True, **self._tokens)
        except Exception as error:  # foreign code, which may fail in any way
            raise InputError(f"the model's chat template refuses these messages: {error}") from None


class Generation(Extension):
    """{% generation %} ... {% endgeneration %}: what an assistant wrote, which counts in training alone."""

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
