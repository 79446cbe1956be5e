"""Templates as models bring them, laid out as transformers lays them out."""

import threading
from dataclasses import replace

import pytest
from support.byte_tokenizer import byte_tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from qbench.runtime.text.tokenizer import Tokenizer
from qbench.serve.chat_template import ChatTemplate, special_texts
from qbench.serve.template_sandbox import TemplateSandbox
from quant.errors import InputError

MESSAGES = [{"role": "user", "content": "na\u00efve <b>"}, {"role": "assistant", "content": "x"}]
TEMPLATES = {
    "loop controls": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% break %}"
    "{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}",
    "json": "{{ messages | tojson }}{{ messages[0] | tojson(ensure_ascii=True, indent=1, separators=(',', ':'), "
    "sort_keys=True) }}",
}


def tokenizer_with(text: str) -> Tokenizer:
    return Tokenizer(replace(byte_tokenizer().info, chat_template=text))


def chat_template(text: str) -> TemplateSandbox:
    return TemplateSandbox(text, special_texts(tokenizer_with(text)), most_chars=1000)


@pytest.mark.parametrize("name", TEMPLATES)
def test_as_transformers_renders_it(name):
    [expected], _ = render_jinja_template([MESSAGES], chat_template=TEMPLATES[name], add_generation_prompt=True)
    assert chat_template(TEMPLATES[name]).render(MESSAGES) == expected


@pytest.mark.parametrize("text", ["{{ 1 / 0 }}", "{{ range(1000000) }}", "{{ [][3].x }}", "{{ messages.a.b }}"])
def test_one_that_fails_refuses_the_messages(text):
    with pytest.raises(InputError, match="chat template refuses these messages"):
        chat_template(text).render(MESSAGES)


def test_text_beyond_the_length_limit_is_refused():
    text = "{% for i in range(101) %}{{ 'ten chars.' }}{% endfor %}"
    with pytest.raises(InputError, match="writes more than 1000 characters"):
        chat_template(text).render(MESSAGES)


@pytest.mark.parametrize("name", TEMPLATES)
def test_the_process_renders_as_the_sandbox(name):
    template = ChatTemplate(tokenizer_with(TEMPLATES[name]))
    try:
        for messages in (MESSAGES, MESSAGES[:1], MESSAGES):
            assert template.render(messages) == chat_template(TEMPLATES[name]).render(messages)
    finally:
        template.close()


def test_variables_reach_the_template_and_never_replace_server_ones():
    template = ChatTemplate(tokenizer_with("{{ messages[0].role }}{{ x }}{{ deep.a[1] }}"))
    try:
        assert template.render(MESSAGES, {"x": False, "deep": {"a": [1, None]}}) == "userFalseNone"
        assert template.render(MESSAGES, {"messages": [{"role": "system"}], "deep": {"a": "xy"}}) == "usery"
    finally:
        template.close()


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
HUGE = "{{ messages[0].content.center(9000000000) }}"


@pytest.mark.parametrize("body", [ENDLESS, HUGE], ids=["endless", "huge"])
def test_messages_that_break_the_limits_are_refused_and_others_rendered(body):
    text = "{% if messages[0].role == 'user' %}" + body + "{% else %}fine{% endif %}"
    template = ChatTemplate(tokenizer_with(text), seconds=0.5)
    try:
        for _ in range(2):
            with pytest.raises(InputError, match=r"broke its limits|MemoryError"):
                template.render(MESSAGES)
            assert template.render(MESSAGES[1:]) == "fine"
    finally:
        template.close()


@pytest.mark.parametrize("text", ["{{ '%5000000000d' % 1 }}", "{{ 'a' * 9999999999 }}"], ids=["format", "repeat"])
def test_constants_that_are_computed_while_it_compiles_have_the_limits(text):
    """Jinja keeps an expression that it could not compute, and tries again while it renders."""
    with pytest.raises(InputError, match=r"broke its limits|MemoryError"):
        ChatTemplate(tokenizer_with(text), seconds=2).render(MESSAGES)


def test_messages_that_are_refused_leave_the_process_at_work():
    template = ChatTemplate(tokenizer_with("{{ messages[1].content }}{{ messages[1].a.b }}"))
    try:
        for _ in range(2):
            with pytest.raises(InputError, match="refuses these messages"):
                template.render(MESSAGES)
        assert template._worker.poll() is None
    finally:
        template.close()


def test_closing_ends_a_rendering():
    template = ChatTemplate(tokenizer_with(ENDLESS), seconds=60)
    closing = threading.Timer(0.2, template.close)
    closing.start()
    with pytest.raises(InputError, match="the server is ending"):
        template.render(MESSAGES)
    with pytest.raises(InputError, match="the server is ending"):
        template.render(MESSAGES)
