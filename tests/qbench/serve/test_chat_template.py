"""Templates as models bring them, laid out as transformers lays them out."""

from dataclasses import replace

import pytest
from support.byte_tokenizer import byte_tokenizer
from transformers.utils.chat_template_utils import render_jinja_template

from qbench.runtime.text.tokenizer import Tokenizer
from qbench.serve.chat_template import ChatTemplate
from quant.errors import InputError

MESSAGES = [{"role": "user", "content": "na\u00efve <b>"}, {"role": "assistant", "content": "x"}]
TEMPLATES = {
    "loop controls": "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% break %}"
    "{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}\n{% endfor %}",
    "json": "{{ messages | tojson }}{{ messages[0] | tojson(ensure_ascii=True, indent=1, separators=(',', ':'), "
    "sort_keys=True) }}",
}


def chat_template(text: str) -> ChatTemplate:
    return ChatTemplate(Tokenizer(replace(byte_tokenizer().info, chat_template=text)))


@pytest.mark.parametrize("name", TEMPLATES)
def test_as_transformers_renders_it(name):
    [expected], _ = render_jinja_template([MESSAGES], chat_template=TEMPLATES[name], add_generation_prompt=True)
    assert chat_template(TEMPLATES[name]).render(MESSAGES) == expected


@pytest.mark.parametrize("text", ["{{ 1 / 0 }}", "{{ range(1000000) }}", "{{ [][3].x }}", "{{ messages.a.b }}"])
def test_one_that_fails_refuses_the_messages(text):
    with pytest.raises(InputError, match="chat template refuses these messages"):
        chat_template(text).render(MESSAGES)
