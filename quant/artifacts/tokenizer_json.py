"""`tokenizers` JSON that is known to load, and how much longer its rules can make a text."""

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import Tokenizer
from tokenizers.models import BPE

from quant.artifacts import charsmap
from quant.artifacts.tokenizer_parts import prepend
from quant.errors import InputError, shown
from quant.panics import panics_as
from quant.present import present

# The library lists every unused id below the largest one when it writes a vocabulary: 16 GB for an id of 32 bits, and
# the process aborts if it has no such memory. No vocabulary is near this size.
MOST_IDS = 1 << 24
# XLM-R's table of 33 bytes for three, marks between its entries, and three bytes for a space, make 66. Offsets take 16
# bytes per byte of the result.
MOST_GROWTH = 128
AT_LEAST = {" +": " ", " {2,}": "  "}  # regular expressions of many tokenizers, and the shortest text of each
FIRST_WORD = r"\A(?= *[^ ])"  # before a text, so it is found once


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
    """Bytes that a byte of text may become in the normalizer, or a byte of a token in the decoder: an upper bound.

    raises   InputError for a broken table of characters, at which the library would panic
    """
    parts = (part for part in (tokenizer.normalizer, tokenizer.decoder) if part is not None)
    return max((sum(_growth(json.loads(part.__getstate__()), 1.0, 0.0)) for part in parts), default=1.0)


def _growth(step: Mapping[str, Any], times: float, more: float) -> tuple[float, float]:
    """(factor, bytes to add) of the text between two control tokens, which may have one byte."""
    kind, factor = step.get("type"), 1.0
    if kind == "Sequence":
        for each in step.get("normalizers") or step.get("decoders") or ():
            times, more = _growth(each, times, more)
    elif kind == "Replace":
        pattern, content = step["pattern"], len(step["content"].encode())
        found = len((pattern.get("String") or AT_LEAST.get(pattern.get("Regex", ""), "")).encode())
        if pattern.get("Regex") == FIRST_WORD:
            return times, more + content
        # Another regular expression may match nothing between two bytes, and then adds to them.
        factor = max(1.0, content / found) if found else 1.0 + content
    elif kind == "Prepend":
        more += len(step["prepend"].encode())
    elif kind == "BertNormalizer":
        factor = 3.0  # spaces around an ideograph
    elif kind == "Precompiled":
        factor = max(1.0, charsmap.growth(base64.b64decode(step["precompiled_charsmap"])))
    return times * factor, more * factor
