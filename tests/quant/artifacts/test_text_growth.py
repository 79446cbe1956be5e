"""A tokenizer whose rules multiply text is refused before a text meets them."""

import base64
import json

import pytest
from support.byte_tokenizer import byte_tokenizer
from support.charsmap_table import table
from tokenizers import Regex, Tokenizer, decoders, normalizers

from qbench.runtime.text.tokenizer import Tokenizer as RuntimeTokenizer
from quant.artifacts.tokenizer_json import MOST_GROWTH, json_of, load_tokenizer, text_growth
from quant.errors import InputError
from quant.source import TokenizerInfo

DEVOUR = normalizers.Replace("a", "a" * 1000)


def precompiled(entries: dict[str, str]) -> dict:
    """A normalizer of SentencePiece's form."""
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table(entries)).decode()}


def document(normalizer=None, decoder=None) -> dict:
    tokenizer = Tokenizer.from_str(byte_tokenizer().info.json)
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if decoder is not None:
        tokenizer.decoder = decoder
    return json.loads(tokenizer.to_str())


def growth_of(changed: dict) -> float:
    return text_growth(Tokenizer.from_str(json.dumps(changed)))


USUAL = {
    "none": (None, 1),
    "unicode": (normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]), 1),
    "llama": (normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]), 12),
    "bert": (normalizers.BertNormalizer(), 3),
    "spaces": (normalizers.Replace(Regex(" {2,}"), " "), 1),
    "letters": (normalizers.Replace(Regex("a{2,}"), "b"), 2),
    "shorter": (normalizers.Replace("aaaa", "a"), 1),
}


@pytest.mark.parametrize("name", USUAL)
def test_growth_of_the_usual_normalizers(name):
    normalizer, growth = USUAL[name]
    assert growth_of(document(normalizer)) == growth
    load_tokenizer(json.dumps(document(normalizer)), "tokenizer.json")


def test_growth_is_an_upper_bound_of_the_library():
    text = "a b  \u4e2d\u6587 aaaa"
    for normalizer, growth in USUAL.values():
        result = text if normalizer is None else normalizer.normalize_str(text)
        assert len(result.encode()) <= growth * len(text.encode())


def test_a_table_counts_its_longest_text():
    assert growth_of(document() | {"normalizer": precompiled({"a": "x", "\u00e9": "y" * 33})}) == 16.5


HOSTILE = {
    "once": document(DEVOUR),
    "six times": document(normalizers.Sequence([DEVOUR] * 6)),
    "nested": document(normalizers.Sequence([normalizers.Sequence([normalizers.Replace("a", "aa")] * 4)] * 2)),
    "between all bytes": document(normalizers.Replace(Regex(""), "b" * 128)),
    "before every stretch": document(normalizers.Prepend("b" * 128)),
    "a table": document() | {"normalizer": precompiled({"a": "y" * 129})},
    "decoder": document(decoder=decoders.Replace("a", "a" * 1000)),
    "sequence of decoders": document(decoder=decoders.Sequence([decoders.Replace("a", "a" * 20)] * 2)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_rules_that_multiply_text_are_refused(name):
    text = json.dumps(HOSTILE[name])
    with pytest.raises(InputError, match=f"times as long, expected at most {MOST_GROWTH}"):
        load_tokenizer(text, "tokenizer.json")
    with pytest.raises(InputError, match="times as long"):
        RuntimeTokenizer(TokenizerInfo(text, None, None, False, None))


def test_a_token_of_a_huge_id_is_refused_before_the_vocabulary_is_written():
    """The library itself would list four billion unused ids."""
    text = json.loads(byte_tokenizer().info.json)
    text["model"]["vocab"]["far"] = 2**32 - 1
    loaded = load_tokenizer(json.dumps(text), "tokenizer.json")
    with pytest.raises(
        InputError, match=r"tokenizer.json: token 'far' has the id 4294967295, expected less than 16777216"
    ):
        json_of(loaded, "tokenizer.json")
