"""How much longer a tokenizer's own rules make a text: a few lines of JSON can ask for terabytes."""

import base64
import binascii
import json
import math
from collections.abc import Mapping
from typing import Any

from tokenizers import Tokenizer

# XLM-R's table of 33 bytes for one, and three bytes for a space, make 99. Offsets take 16 bytes per byte of the result.
MOST_GROWTH = 128
LENGTH_BYTES = 4  # of the trie, at the head of a precompiled table


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
