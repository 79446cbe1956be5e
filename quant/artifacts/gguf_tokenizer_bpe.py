"""BPE with the way words are cut as a name: GGUF's tokenizer model "gpt2", and "gemma4" with characters for bytes."""

import json
import logging
from collections.abc import Callable, Mapping
from functools import cache
from random import Random
from typing import Any

from tokenizers import Tokenizer

from quant.artifacts.gguf_cursor import Value, Written
from quant.artifacts.gguf_keys import scalar
from quant.artifacts.gguf_pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from quant.artifacts.gguf_tokenizer_spm import REPLACE, space_decoder
from quant.artifacts.gguf_vocabulary import BYTE, UNKNOWN, Vocabulary, merge_pairs, string_list
from quant.artifacts.tokenizer_parts import Step, TokenizerParts
from quant.errors import InputError, shown
from quant.panics import panics_as

MODEL, GEMMA4 = "gpt2", "gemma4"
MERGES = "tokenizer.ggml.merges"
UNNAMED = "default"
# llama.cpp has no composition of characters and ignores the key, also for models that were trained with it.
NORMALIZER = "qbench.tokenizer.normalizer"
_COMPOSE: Step = {"type": "NFC"}
_BYTES: Step = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
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


def metadata_from_json(document: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> dict[str, Written]:
    """pre, merges and the normalizer. raises InputError for a preparation of the text that has no name in GGUF."""
    composes = _composes(document.get("normalizer"), where)
    return {
        "pre": _name(document.get("pre_tokenizer"), bool(document["model"].get("ignore_merges")), where),
        "merges": [f"{left} {right}" for left, right in merge_pairs(document["model"], where)],
        **({NORMALIZER: _COMPOSE["type"]} if composes else {}),
    }


def _composes(normalizer: Mapping[str, Any] | None, where: str) -> bool:
    """Whether the text is composed first. raises InputError for any other normalizer"""
    steps = (normalizer or {}).get("normalizers", [normalizer] if normalizer else [])
    if steps not in ([], [_COMPOSE]):
        raise InputError(
            f"{where}: the tokenizer's normalizer is {shown(normalizer)}, and GGUF's 'gpt2' tokenizer has none but "
            "NFC; write a Hugging Face directory"
        )
    return bool(steps)


def _name(steps: Mapping[str, Any] | None, ignore_merges: bool, where: str) -> str:
    """The first name of the way that cuts words at the same places. raises InputError if no name fits"""
    rows = [
        (name, row)
        for name, row in PRE_TOKENIZERS.items()
        if row.bytes and name != UNNAMED and row.ignore_merges == ignore_merges
    ]
    try:
        found = (name for name, row in rows if steps is not None and cut_alike(steps, _pre_tokenizer(row)))
        name = next(found, None)
    except RuntimeError as error:
        raise InputError(f"{where}: the tokenizer cannot cut a text: {error}") from None
    if name is None:
        raise InputError(
            f"{where}: the tokenizer cuts words in none of the {len(PRE_TOKENIZERS)} ways known for GGUF; write a "
            "Hugging Face directory"
        )
    return name


def adds_bos(metadata: Mapping[str, Value], where: str) -> bool:
    """Whether a text begins with BOS if the file does not say it."""
    return _row(metadata, where).adds_bos


def _row(metadata: Mapping[str, Value], where: str) -> PreTokenizer:
    """The way that the file names, or llama.cpp's own. raises InputError for an unknown name"""
    model, pre = (scalar(metadata, f"tokenizer.ggml.{key}", str, where) for key in ("model", "pre"))
    if model == GEMMA4:
        return PRE_TOKENIZERS[GEMMA4]
    if not pre:
        return PRE_TOKENIZERS[UNNAMED]
    if pre not in PRE_TOKENIZERS:
        raise InputError(
            f"{where}: tokenizer.ggml.pre is {shown(pre)}, none of the {len(PRE_TOKENIZERS)} that are known"
        )
    return PRE_TOKENIZERS[pre]


def json_from_metadata(metadata: Mapping[str, Value], vocabulary: Vocabulary, where: str) -> TokenizerParts:
    """The parts of a `tokenizers` JSON document that make this kind."""
    row = _row(metadata, where)
    if row == PRE_TOKENIZERS[UNNAMED]:
        logging.getLogger(__name__).warning(
            "%s does not name its pre-tokenizer: words are cut as llama.cpp does then, which may be another way than "
            "the model was trained with",
            where,
        )
    # A vocabulary of bytes alone has no merges, and the gguf package writes no empty list.
    texts = string_list(metadata, MERGES, where) if MERGES in metadata else []
    merges = [_pair(merge) for merge in texts]
    known = vocabulary.stored()
    for pair in merges:
        if len(pair) != 2 or not {*pair, "".join(pair)} <= known.keys():
            raise InputError(f"{where}: merge {shown(' '.join(pair))} joins or makes what is no token")
    return {
        "normalizer": REPLACE if row.spaces else _normalizer(metadata, where),
        "pre_tokenizer": _pre_tokenizer(row),
        "post_processor": None,
        "decoder": _BYTES if row.bytes else space_decoder(False),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None if row.bytes else next(iter(vocabulary.ids(UNKNOWN)), None),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": not row.bytes and bool(vocabulary.ids(BYTE)),
            "ignore_merges": row.ignore_merges,
            "vocab": known,
            "merges": merges,
        },
    }


def _normalizer(metadata: Mapping[str, Value], where: str) -> Step | None:
    named = scalar(metadata, NORMALIZER, str, where)
    if named not in (None, _COMPOSE["type"]):
        raise InputError(f"{where}: {NORMALIZER} is {shown(named)}, expected {_COMPOSE['type']}")
    return _COMPOSE if named else None


def _pair(merge: str) -> list[str]:
    """The two texts of a merge; the first is not empty, and may be a space."""
    cut = merge.find(" ", 1)
    return [merge] if cut < 0 else [merge[:cut], merge[cut + 1 :]]


def _pre_tokenizer(row: PreTokenizer) -> Step:
    return {"type": "Sequence", "pretokenizers": list(row.steps)}


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
