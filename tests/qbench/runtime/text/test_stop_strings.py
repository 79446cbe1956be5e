"""Stop strings: where the text ends, and that no part of one is ever given out."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.byte_tokenizer import byte_tokenizer

from qbench.runtime.text.stop_strings import StoppingStream, StopStrings
from quant.errors import InputError


def ended_by_characters(text: str, stops: list[str]) -> str:
    """The text before the first stop string, looked for after each character."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return text[: min(starts)]
    return text


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    pieces=st.lists(st.text("ab\n", max_size=4), max_size=8),
    stops=st.lists(st.text("ab\n", min_size=1, max_size=4), max_size=3),
)
def test_reported_text_does_not_depend_on_the_pieces(pieces, stops):
    stream, told = StopStrings(stops), ""
    expected = ended_by_characters("".join(pieces), stops)
    for piece in pieces:
        told += stream.push(piece)
        assert expected.startswith(told)
    told += stream.flush()
    assert told == expected
    assert stream.stopped == (expected != "".join(pieces))


def test_only_a_possible_stop_string_is_held_back():
    stream = StopStrings(["END", "\n\n"])
    assert stream.push("an E") == "an "
    assert stream.push("N") == ""
    assert stream.push("gine\n") == "ENgine"
    assert stream.push("x") == "\nx"
    assert (stream.push("yEN"), stream.push("D of it"), stream.stopped) == ("y", "", True)
    assert (stream.push("more"), stream.flush()) == ("", "")


@pytest.mark.parametrize(
    "stop", ["é", "日本", "a日"], ids=["of two bytes", "of six bytes", "across a letter and bytes"]
)
def test_a_stop_string_may_span_tokens(stop):
    tokenizer = byte_tokenizer()
    stream, told = StoppingStream(tokenizer.stream(), [stop]), ""
    for token in tokenizer.encode(f"ab日 a日x\u00e8{stop}rest", add_bos=False):
        told += stream.push(token)
    assert told + stream.flush() == ("ab日 " if stop == "a日" else "ab日 a日x\u00e8")
    assert stream.stopped


def test_bytes_that_form_no_character_are_reported_at_the_end():
    tokenizer = byte_tokenizer()
    stream = StoppingStream(tokenizer.stream(), ["xyz"])
    told = [stream.push(token) for token in tokenizer.encode("xy日", add_bos=False)[:-1]]
    assert "".join(told) == "" and stream.flush() == "xy\N{REPLACEMENT CHARACTER}"


def test_an_empty_stop_string_is_named():
    with pytest.raises(InputError, match="a stop string is empty"):
        StopStrings(["a", ""])
