"""Whether two pre-tokenizers of `tokenizers` cut texts at the same places, however they are spelled."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

from tokenizers import Tokenizer

from quant.panics import panics_as

# One or more of each class that a regular expression of a tokenizer distinguishes, and parts of contractions.
_SPACES = [" ", " ", "  ", "\n", "\r", "\t", "\u00a0", "\u2028", "\u3000", "\u0085", "\u200b"]
_LETTERS = [*"aszABSZ", "\u00e9", "\u00c9", "\u00df", "\u017f", "\u01c5", "\u02b0", "\u03b1", "\u0411", "\U0001d400"]
_SCRIPTS = [
    "\u6f22",
    "\u4e00",
    "\u3042",
    "\u30ab",
    "\u3105",
    "\uac00",
    "\u3131",
    "\u0e01",
    "\u0e40",
    "\u0915",
    "\u05d0",
]
_MARKS = ["\u0301", "\u093f", "\u0e31", "\u20e3", "\ufe0f"]
_NUMBERS = [*"012789", "12", "345", "\u0663", "\u2167", "\u00b2"]
_SIGNS = [*"!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~", "\u201c", "\u2026", "\u2014", "\u3002", "\uff01", "\u060c"]
_SYMBOLS = ["\u20ac", "\u2122", "\u00a9", "\u2194", "\U0001f642", "\u00ac"]
_OTHERS = ["\x01", "\u200d", "\ue000", "\u0378", "\ufffd"]
_WORDS = ["'s", "'S", "'ll", "'LL", "'re", "'t", "it's", "I'LL", "Hello", "iPhone", "WORLD", "caf\u00e9", "x1", "1,234"]
_CLASSES = [_SPACES, _SPACES, _LETTERS, _LETTERS, _SCRIPTS, _MARKS, _NUMBERS, _SIGNS, _SYMBOLS, _OTHERS, _WORDS]
_NUM_TEXTS, _MOST_PARTS = 4000, 14


@cache
def probe_texts() -> tuple[str, ...]:
    """Texts of parts that are drawn from all classes, the same ones in every process."""
    random = Random(0)
    counts = [random.randint(1, _MOST_PARTS) for _ in range(_NUM_TEXTS)]
    return tuple("".join(random.choice(random.choice(_CLASSES)) for _ in range(count)) for count in counts)


def cut_alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether every probe text is cut at the same places.

    one, other   `pre_tokenizer` of a `tokenizers` JSON document
    raises       RuntimeError for one that the library cannot load, or that gives up on a text
    """
    with panics_as(RuntimeError):
        cutters = [_cutter(steps) for steps in (one, other)]
        return all(cutters[0](text) == cutters[1](text) for text in probe_texts())


def _cutter(steps: Mapping[str, Any]) -> Callable[[str], list[Any]]:
    """text -> pieces with their places"""
    model = {"type": "BPE", "vocab": {}, "merges": []}
    rest = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    document = {"version": "1.0", "added_tokens": [], **rest, "pre_tokenizer": steps, "model": model}
    cutter = Tokenizer.from_str(json.dumps(document)).pre_tokenizer
    assert cutter is not None
    return cutter.pre_tokenize_str
