"""Unigram: GGUF's tokenizer model "t5", the most probable sequence of pieces.

llama.cpp and `tokenizers` agree in the model: a character that is no piece costs the lowest score less 10, and unknown
neighbours are one token. `charsmap` makes them agree in the characters that are replaced before.
source: llama.cpp, llm_tokenizer_ugm; tokenizers, models/unigram
"""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from quant.artifacts import charsmap
from quant.artifacts.gguf_cursor import Value, Written
from quant.artifacts.gguf_keys import scalar
from quant.artifacts.gguf_tokenizer_spm import PREPEND, REPLACE, SPACE, space_decoder
from quant.artifacts.gguf_vocabulary import NORMAL, UNKNOWN, UNUSED, Vocabulary, number_list
from quant.artifacts.tokenizer_json import FIRST_WORD
from quant.artifacts.tokenizer_parts import Step, TokenizerParts
from quant.errors import InputError, shown

T = TypeVar("T")
MODEL = "t5"
CHARSMAP = "tokenizer.ggml.precompiled_charsmap"
# Normalizer and pre-tokenizer as JSON, without the table, of a tokenizer.json that prepares texts in other steps. They
# differ in texts that SentencePiece prepares otherwise, and llama.cpp ignores the key.
STEPS = "qbench.tokenizer.steps"
PADDING = -10000.0  # score of ids without a piece, as llama.cpp's converter has it
# `remove_extra_whitespaces`: no spaces at the ends, and one between words.
_ENDS: Step = {"type": "Replace", "pattern": {"Regex": r"\A +| +\z"}, "content": ""}
_RUNS: Step = {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}
# A text of nothing but spaces gets no further one.
_FIRST: Step = {"type": "Replace", "pattern": {"Regex": FIRST_WORD}, "content": SPACE}
_WORDS: Step = {"type": "WhitespaceSplit"}


def adds_bos(metadata: Mapping[str, Value], where: str) -> bool:
    """llama.cpp's own choice if the file does not say it."""
    return False


def metadata_from_json(document: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> dict[str, Written]:
    """scores, spaces and the table of characters. raises InputError for a tokenizer that GGUF cannot say."""
    model = document["model"]
    if model.get("byte_fallback") or not vocabulary.ids(UNKNOWN):
        raise InputError(
            f"{where}: GGUF's 't5' tokenizer has an unknown token and no fallback to bytes; write a Hugging Face "
            "directory"
        )
    scores = [PADDING if kind == UNUSED else 0.0 for kind in vocabulary.types]
    for token_id, (_, score) in enumerate(model["vocab"]):
        scores[token_id] = float(score)
    return {"pre": "default", "scores": scores, **_preparation(document, vocabulary, where)}


def json_from_metadata(metadata: Mapping[str, Value], vocabulary: Vocabulary, where: str) -> TokenizerParts:
    """The parts of a `tokenizers` JSON document that make this kind."""
    scores = number_list(metadata, "tokenizer.ggml.scores", where)
    if len(scores) != len(vocabulary.tokens):
        raise InputError(f"{where}: {len(scores)} scores for {len(vocabulary.tokens)} tokens")
    unknown = vocabulary.ids(UNKNOWN)
    if not unknown:
        raise InputError(f"{where}: tokenizer.ggml.token_type names no unknown token, which Unigram needs")
    # Ids behind the pieces have no token: Unigram has no other place for them than its end.
    num_pieces = max(token for token, kind in enumerate(vocabulary.types) if kind != UNUSED) + 1
    # The cost of unknown characters follows from the words, whatever scores other tokens have.
    rows = list(zip(vocabulary.tokens, vocabulary.types, map(float, scores), strict=True))[:num_pieces]
    lowest = min((score for _, kind, score in rows if kind == NORMAL), default=0.0)
    merges_spaces = metadata.get("tokenizer.ggml.remove_extra_whitespaces", False) is True
    has_prefix = merges_spaces or metadata.get("tokenizer.ggml.add_space_prefix", False) is True
    raw = _table(metadata, where)
    normalizer, pre = _steps(metadata, raw, where)
    if normalizer is None and pre is None:
        replaced = () if raw is None else _of_table(charsmap.steps, raw, where)
        normalizer = Step(type="Sequence", normalizers=[*replaced, *_spaces(has_prefix, merges_spaces)])
    return {
        "normalizer": normalizer,
        "pre_tokenizer": pre,
        "post_processor": None,
        "decoder": space_decoder(has_prefix),
        "model": {
            "type": "Unigram",
            "unk_id": next(iter(unknown.values())),
            "vocab": [[piece, score if kind == NORMAL else max(lowest, score)] for piece, kind, score in rows],
            "byte_fallback": False,
        },
    }


def _spaces(has_prefix: bool, merges_spaces: bool) -> list[Step]:
    return [_ENDS, _RUNS, PREPEND, REPLACE] if merges_spaces else [*([_FIRST] if has_prefix else []), REPLACE]


def _of_table(part: Callable[[bytes], T], raw: bytes, where: str) -> T:
    """`part` of a table. raises InputError for a broken one, or one that `tokenizers` has no steps for"""
    try:
        return part(raw)
    except InputError as error:
        raise InputError(f"{where}: {error}; take the model's original Hugging Face directory") from None


def _table(metadata: Mapping[str, Value], where: str) -> bytes | None:
    """The bytes of the key, or None. raises InputError for a key that is no list of bytes"""
    if CHARSMAP not in metadata:
        return None
    values = metadata[CHARSMAP]
    if not isinstance(values, np.ndarray) or values.dtype not in (np.uint8, np.int8):
        raise InputError(f"{where}: key {CHARSMAP!r} must be a list of bytes, got {shown(values)}")
    return values.tobytes()


def _steps(metadata: Mapping[str, Value], raw: bytes | None, where: str) -> tuple[Any, Any]:
    """(normalizer, pre-tokenizer) of a file of ours, or (None, None). raises InputError for a key that is no JSON"""
    text = scalar(metadata, STEPS, str, where)
    if text is None:
        return None, None
    if raw is not None:
        _of_table(charsmap.entries, raw, where)
    try:
        normalizer, pre = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        raise InputError(f"{where}: key {STEPS!r} must be JSON of a pair, got {shown(text)}") from None
    for step in _flat(normalizer):
        if step.get("type") == "Precompiled":
            step["precompiled_charsmap"] = base64.b64encode(raw or b"").decode()
    return normalizer, pre


def _flat(part: Any, key: str = "normalizers") -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer."""
    steps = part.get(key) if isinstance(part, Mapping) and part.get("type") == "Sequence" else [part]
    return [step for step in steps or () if isinstance(step, dict)]


def _preparation(document: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> dict[str, Written]:
    """Keys of the spaces and of the table. raises InputError for any other preparation of the text"""
    pre, steps = document.get("pre_tokenizer"), _flat(document.get("normalizer"))
    tables = [base64.b64decode(step["precompiled_charsmap"]) for step in steps if step["type"] == "Precompiled"]
    keys: dict[str, Written] = {}
    if tables:
        keys[CHARSMAP] = tables[0]
        _of_table(charsmap.entries, tables[0], where)
    if pre is None:
        before = list(_of_table(charsmap.steps, tables[0], where)) if len(steps) > 1 and tables else []
        for has_prefix, merges_spaces in ((True, True), (True, False), (False, False)):
            if steps == before + _spaces(has_prefix, merges_spaces):
                return keys | _flags(has_prefix, merges_spaces)
        if steps == [PREPEND, REPLACE]:
            return _flags(True, False)
    flags = _metaspace(steps[1:] if tables else steps, _flat(pre, "pretokenizers"), vocabulary)
    if len(tables) > 1 or (tables and steps[0]["type"] != "Precompiled") or flags is None:
        raise InputError(
            f"{where}: the tokenizer's normalizer or pre-tokenizer is more than SentencePiece's spaces and table of "
            "characters, which GGUF's 't5' tokenizer cannot say here; write a Hugging Face directory"
        )
    bare = [{key: value for key, value in step.items() if key != "precompiled_charsmap"} for step in steps]
    normalizer = {"type": "Sequence", "normalizers": bare} if bare else None
    return keys | flags | {STEPS: json.dumps([normalizer, pre], ensure_ascii=False)}


def _flags(has_prefix: bool, merges_spaces: bool) -> dict[str, Written]:
    return {"add_space_prefix": has_prefix, "remove_extra_whitespaces": merges_spaces}


def _metaspace(
    steps: Sequence[Mapping[str, Any]], pre: Sequence[Mapping[str, Any]], vocabulary: Vocabulary
) -> dict[str, Written] | None:
    """The flags of the forms that transformers writes: Metaspace, behind steps that merge or strip spaces.

    None for all others. Words are cut before pieces are chosen, which makes a difference only if a piece goes on into
    the next word.
    """
    strips = [step for step in steps if step["type"] == "Strip"]
    runs = [step for step in steps if step.get("pattern") == {"Regex": " {2,}"} and step["content"] in (" ", SPACE)]
    cuts = [step for step in pre if step == _WORDS]
    rest = [step for step in pre if step != _WORDS]
    if len(strips) + len(runs) < len(steps) or len(cuts) > 1 or [step["type"] for step in rest] != ["Metaspace"]:
        return None
    merges_spaces, has_prefix = bool(runs or cuts), rest[0].get("prepend_scheme") != "never"
    goes_on = any(SPACE in token[1:] for token in vocabulary.tokens)
    if rest[0].get("replacement") != SPACE or (merges_spaces and not has_prefix):
        return None
    return None if (cuts or rest[0].get("split", True)) and goes_on else _flags(has_prefix, merges_spaces)
