"""`tokenizers` JSON that is known to load, and how much longer its rules can make a text."""

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE

from quant.artifacts.tokenizer_parts import prepend
from quant.errors import InputError, shown
from quant.panics import panics_as
from quant.present import present

# The library lists every unused id below the largest one when it writes a vocabulary: 16 GB for an id of 32 bits, and
# the process aborts if it has no such memory. No vocabulary is near this size.
MOST_IDS = 1 << 24
# XLM-R's table of 33 bytes for one, and three bytes for a space, make 99. Offsets take 16 bytes per byte of the result.
MOST_GROWTH = 128
LENGTH_BYTES = 4  # of the trie, at the head of a precompiled table


def parse_tokenizer(text: str) -> Tokenizer:
    """The tokenizer of the text, for whole texts: it neither cuts nor pads them, whatever was saved with it.

    transformers sets both again for each call, so a file has the settings of the last call before it was saved.
    Dropout of merges is for training: with it a text has other tokens at each call.
    raises   Exception itself for a malformed text, as the library does; RuntimeError for a panic, and for rules that
             make a text much longer
    """
    with panics_as(RuntimeError):
        tokenizer = Tokenizer.from_str(text)
        if (growth := text_growth(tokenizer)) > MOST_GROWTH:
            raise RuntimeError(
                f"its normalizer or decoder makes text up to {growth:.3g} times as long, expected at most {MOST_GROWTH}"
            )
        tokenizer.no_truncation()
        tokenizer.no_padding()
        if isinstance(tokenizer.model, BPE) and tokenizer.model.dropout:
            tokenizer.model.dropout = None
        return tokenizer


def load_tokenizer(text: str, where: str) -> Tokenizer:
    """The tokenizer of a file. raises InputError if it is not valid."""
    try:
        return parse_tokenizer(text)
    except Exception as error:  # the library raises plain Exception for whatever it cannot parse
        raise InputError(f"{where}: not a tokenizer that the tokenizers library reads ({error})") from error


def normalizer_of(tokenizer: Tokenizer, where: str) -> Callable[[str], str]:
    """text -> normalized text; the function raises InputError if the library panics"""

    def normalize(text: str) -> str:
        with panics_as(lambda panic: InputError(f"{where}: the tokenizer cannot normalize a text: {panic}")):
            return text if tokenizer.normalizer is None else tokenizer.normalizer.normalize_str(text)

    return normalize


def json_of(tokenizer: Tokenizer, where: str) -> str:
    """The tokenizer as JSON. raises InputError for an id that is far beyond any vocabulary"""
    token, largest = max(tokenizer.get_vocab().items(), key=lambda item: item[1], default=("", 0))
    if largest >= MOST_IDS:
        raise InputError(f"{where}: token {shown(token)} has the id {largest}, expected less than {MOST_IDS}")
    return tokenizer.to_str()


def with_first_token(tokenizer: Tokenizer, token_id: int, where: str) -> Tokenizer:
    """A copy that puts the token before each text."""
    document = json.loads(json_of(tokenizer, where))
    document["post_processor"] = prepend(present(tokenizer.id_to_token(token_id)), token_id)
    return Tokenizer.from_str(json.dumps(document, ensure_ascii=False))


def text_growth(tokenizer: Tokenizer) -> float:
    """Bytes that a byte of text may become in the normalizer, or a byte of a token in the decoder: an upper bound."""
    parts = (part for part in (tokenizer.normalizer, tokenizer.decoder) if part is not None)
    return max(map(_growth, (json.loads(part.__getstate__()) for part in parts)), default=1.0)


def _growth(step: Mapping[str, Any]) -> float:
    kind = step.get("type")
    if kind == "Sequence":
        steps = step.get("normalizers") or step.get("decoders") or ()
        return math.prod(map(_growth, steps))
    if kind == "Replace":
        pattern, content = step["pattern"], len(step["content"].encode())
        # A regular expression may match nothing between two bytes, and then adds to them.
        literal = len(pattern.get("String", "").encode())
        return max(1.0, content / literal) if literal else 1.0 + content
    if kind == "Prepend":  # once per stretch between control tokens, which may have one byte
        return 1.0 + len(step["prepend"].encode())
    if kind == "BertNormalizer":
        return 3.0  # spaces around an ideograph
    return _longest_entry(step.get("precompiled_charsmap")) if kind == "Precompiled" else 1.0


def _longest_entry(table: Any) -> float:
    """The longest text of a table of SentencePiece: length of the trie u32 | trie | texts, each with a 0 behind."""
    try:
        raw = base64.b64decode(table or "", validate=True)
    except (binascii.Error, ValueError, TypeError):
        return math.inf
    texts = raw[LENGTH_BYTES + int.from_bytes(raw[:LENGTH_BYTES], "little") :]
    return max(1.0, *map(float, map(len, texts.split(b"\0"))))
