"""BOS once and only once, and streams whose pieces add up to the whole text."""

import json
import threading
import time

import pytest
from support.byte_tokenizer import byte_level_json
from support.data import STORIES260K, needs_stories

from qbench.runtime import Tokenizer
from quant.artifacts.hf_tokenizer import read_tokenizer
from quant.errors import InputError
from quant.source import TokenizerInfo

TEXTS = {
    "ascii": "Once upon a time",
    "two-byte letters": "naïve café",
    "emoji of four bytes": "a 🙂 b 🙂🙂",
    "Japanese": "日本語です",
    "spaces": "  two  spaces ",
    "newlines": "a\n\nb",
}


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer(TokenizerInfo(byte_level_json(), bos_token_id=256, eos_token_id=None, add_bos=True))


def test_bos_is_added_once(tokenizer):
    plain = tokenizer.encode("ab", add_bos=False)
    assert 256 not in plain
    assert tokenizer.encode("ab") == tokenizer.encode("ab", add_bos=True) == [256, *plain]
    assert tokenizer.encode("<s>ab") == [256, *plain], "text that brings its own BOS gets no second one"
    assert tokenizer.encode("") == [256]


def test_without_the_convention_there_is_no_bos_unless_asked():
    tokenizer = Tokenizer(TokenizerInfo(byte_level_json(), 256, None, add_bos=False))
    assert 256 not in tokenizer.encode("ab")
    assert tokenizer.encode("ab", add_bos=True)[0] == 256


def test_no_bos_token_to_add():
    tokenizer = Tokenizer(TokenizerInfo(byte_level_json(), None, None, add_bos=True))
    with pytest.raises(InputError, match="no BOS token"):
        tokenizer.encode("ab")


TRUNCATION = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
PADDING = {
    "strategy": {"Fixed": 64},
    "direction": "Left",
    "pad_to_multiple_of": None,
    "pad_id": 0,
    "pad_type_id": 0,
    "pad_token": "!",
}


def test_settings_of_an_earlier_call_neither_cut_nor_pad_a_text(tokenizer, tmp_path):
    """transformers sets both again for each call."""
    saved = json.loads(byte_level_json()) | {"truncation": TRUNCATION, "padding": PADDING}
    info = TokenizerInfo(json.dumps(saved), bos_token_id=256, eos_token_id=None, add_bos=True)
    text = "Once upon a time there was a little girl"
    assert Tokenizer(info).encode(text) == tokenizer.encode(text)
    (tmp_path / "tokenizer.json").write_text(info.json)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>"}))
    assert read_tokenizer(tmp_path, {}) == info, "it still adds BOS, which padding would hide"


def test_dropout_of_merges_is_off():
    """With it, each call would cut the text in another way."""
    document = json.loads(byte_level_json())
    document["model"] |= {"dropout": 1.0, "merges": [["a", "b"]]}
    document["model"]["vocab"]["ab"] = 300
    info = TokenizerInfo(json.dumps(document), None, None, add_bos=False)
    assert Tokenizer(info).encode("abab") == [300, 300]


def test_text_without_utf8_is_refused(tokenizer):
    with pytest.raises(InputError, match=r"not UTF-8: U\+D800 at character 2"):
        tokenizer.encode("ab\ud800")


def test_other_threads_run_while_a_long_text_is_cut(tokenizer):
    """The whole of it, seconds long, would pass between two ticks if the lock of Python were held.

    On a busy machine the other thread may get no processor meanwhile, so there are several attempts.
    """
    ticks, is_over = [], threading.Event()

    def tick():
        while not is_over.wait(0.001):
            ticks.append(time.perf_counter())

    other = threading.Thread(target=tick)
    other.start()
    meanwhile = []
    while len(meanwhile) < 20 and max(meanwhile, default=0) <= 5:
        begin = time.perf_counter()
        tokenizer.encode("some words of a text " * 20_000)
        end = time.perf_counter()
        meanwhile.append(len([at for at in ticks if begin < at < end]))
    is_over.set()
    other.join()
    assert max(meanwhile) > 5


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in TEXTS.items()])
def test_decode_inverts_encode(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in TEXTS.items()])
def test_a_stream_gives_the_whole_text_in_whole_letters(tokenizer, text):
    stream = tokenizer.stream()
    pieces = [stream.push(token) for token in tokenizer.encode(text)]
    assert "".join(pieces) + stream.flush() == text
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_half_a_letter_is_given_only_at_the_end(tokenizer):
    half = tokenizer.encode("x🙂", add_bos=False)[:-1]
    stream = tokenizer.stream()
    assert [stream.push(token) for token in half] == ["x", "", "", ""]
    assert stream.flush() == "\N{REPLACEMENT CHARACTER}"
    assert stream.flush() == ""


def test_a_stray_byte_does_not_hold_back_the_rest(tokenizer):
    stray = tokenizer.encode("é", add_bos=False)[1]
    stream = tokenizer.stream()
    assert stream.push(stray) == ""
    assert stream.push(tokenizer.encode("a", add_bos=False)[0]) == "\N{REPLACEMENT CHARACTER}a"


@needs_stories
def test_a_sentencepiece_stream_keeps_the_spaces_between_words():
    json_text = (STORIES260K / "tokenizer.json").read_text()
    tokenizer = Tokenizer(TokenizerInfo(json_text, 1, 2, add_bos=True))
    prompt = tokenizer.encode("Once upon a")
    rest = tokenizer.encode("Once upon a time, there was é 🙂 girl")[len(prompt) :]
    stream = tokenizer.stream(prompt)
    assert "".join(stream.push(token) for token in rest) + stream.flush() == " time, there was é 🙂 girl"


@pytest.mark.parametrize(
    "text", ["", "{}", "not json", json.dumps({"model": 3})], ids=["empty", "{}", "text", "no model"]
)
def test_a_broken_tokenizer_is_an_input_error(text):
    with pytest.raises(InputError, match="the tokenizer cannot be read"):
        Tokenizer(TokenizerInfo(text, None, None, add_bos=False))
