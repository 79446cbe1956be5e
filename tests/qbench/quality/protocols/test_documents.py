import json
import re

import pytest
from support.data import SHARED

from qbench.quality.protocols.documents import read_passage
from quant.errors import InputError

WIKITEXT = SHARED / "corpora" / "wikitext-2-raw" / "wiki.valid.raw"


def texts(text: str, how: str | None = None) -> list[str]:
    return [document.text for document in read_passage(text, how).documents]


def test_a_text_is_divided_as_it_looks():
    assert texts("one {text}\n\ntwo\n") == ["one {text}\n\ntwo\n"]
    assert texts("<|endoftext|>one<|endoftext|>\n<|endoftext|>two ") == ["one", "two "]
    lines = '{"text": "one", "id": 3}\n\n{"text": "two\\nlines"}\n'
    assert texts(lines) == ["one", "two\nlines"]
    assert read_passage(lines).stream == "one\n\ntwo\nlines" and read_passage(lines).text == lines
    assert texts("{not json\n") == ["{not json\n"]
    assert texts("one<|endoftext|>two", "whole") == ["one<|endoftext|>two"]


def test_words_and_bytes_are_counted_as_lm_eval_counts_them():
    (document,) = read_passage(" caf\u00e9  two\nthree\n").documents
    assert document.num_words == len(["", "caf\u00e9", "two", "three", ""])
    assert document.num_bytes == len(" caf\u00e9  two\nthree\n") + 1


@pytest.mark.parametrize(
    "text, how, message",
    [
        pytest.param(" \n", None, "empty", id="nothing"),
        pytest.param("<|endoftext|>", None, "empty", id="a separator alone"),
        pytest.param('{"text": "a"}\n{"txet": "b"}', None, "line 2", id="a line without text"),
        pytest.param('{"text": "a"}\n{"text": 3}', None, "line 2.*3", id="a text that is a number"),
        pytest.param("plain", "jsonl", "line 1", id="no JSON"),
        pytest.param("plain", "wikitext", "no article", id="no WikiText"),
    ],
)
def test_texts_with_a_wrong_name_are_refused(text, how, message):
    with pytest.raises(InputError, match=message):
        read_passage(text, how)


@pytest.mark.skipif(not WIKITEXT.exists(), reason="shared/data/corpora/wikitext-2-raw is absent")
def test_wikitext_articles_are_whole_and_lose_nothing():
    text = WIKITEXT.read_text(encoding="utf-8")
    passage = read_passage(text, "wikitext")
    assert len(passage.documents) == 60  # the number of articles in WikiText-2's validation split
    assert all(re.match(r"\s*= [^=]+ =\n", document.text) for document in passage.documents)
    assert passage.stream == text
    joined = read_passage(json.dumps({"text": text}))
    assert sum(d.num_bytes for d in passage.documents) + len(passage.documents) - 1 == joined.documents[0].num_bytes
