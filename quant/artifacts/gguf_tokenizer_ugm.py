"""Unigram: GGUF's tokenizer model "t5", the most probable sequence of pieces.

llama.cpp and `tokenizers` agree in the rest: a character that is no piece costs the lowest score less 10, and unknown
neighbours are one token. source: llama.cpp, llm_tokenizer_ugm; tokenizers, models/unigram
"""

from collections.abc import Mapping
from typing import Any

from quant.artifacts.gguf_cursor import Value, Written
from quant.artifacts.gguf_tokenizer_spm import PREPEND, REPLACE, SPACE, space_decoder
from quant.artifacts.gguf_vocabulary import UNKNOWN, UNUSED, Vocabulary, number_list
from quant.artifacts.tokenizer_parts import Step, TokenizerParts
from quant.errors import InputError

MODEL = "t5"
CHARSMAP = "tokenizer.ggml.precompiled_charsmap"
# `remove_extra_whitespaces`: no spaces at the ends, and one between words.
_ENDS: Step = {"type": "Replace", "pattern": {"Regex": "^ +| +$"}, "content": ""}
_RUNS: Step = {"type": "Replace", "pattern": {"Regex": " +"}, "content": " "}


def adds_bos(metadata: Mapping[str, Value], where: str) -> bool:
    """llama.cpp's own choice if the file does not say it."""
    return False


def metadata_from_json(document: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> dict[str, Written]:
    """scores, add_space_prefix and remove_extra_whitespaces. raises InputError for a tokenizer that GGUF cannot say."""
    model = document["model"]
    if model.get("byte_fallback") or not vocabulary.ids(UNKNOWN):
        raise InputError(
            f"{where}: GGUF's 't5' tokenizer has an unknown token and no fallback to bytes; write a Hugging Face "
            "directory"
        )
    scores = [0.0] * len(vocabulary.tokens)
    for token_id, (_, score) in enumerate(model["vocab"]):
        scores[token_id] = float(score)
    has_prefix, merges_spaces = _spaces(document, vocabulary, where)
    return {
        "pre": "default",
        "scores": scores,
        "add_space_prefix": has_prefix,
        "remove_extra_whitespaces": merges_spaces,
    }


def json_from_metadata(metadata: Mapping[str, Value], vocabulary: Vocabulary, where: str) -> TokenizerParts:
    """The parts of a `tokenizers` JSON document that make this kind."""
    scores = number_list(metadata, "tokenizer.ggml.scores", where)
    if len(scores) != len(vocabulary.tokens):
        raise InputError(f"{where}: {len(scores)} scores for {len(vocabulary.tokens)} tokens")
    if CHARSMAP in metadata:
        raise InputError(
            f"{where}: the 't5' tokenizer (Unigram) has a {CHARSMAP}, which is not read: `tokenizers` and llama.cpp "
            "replace characters in different ways; read the model from its Hugging Face directory"
        )
    unknown = vocabulary.ids(UNKNOWN)
    if not unknown:
        raise InputError(f"{where}: tokenizer.ggml.token_type names no unknown token, which Unigram needs")
    # Ids behind the pieces have no token: Unigram has no other place for them than its end.
    num_pieces = vocabulary.types.index(UNUSED) if UNUSED in vocabulary.types else len(scores)
    merges_spaces = metadata.get("tokenizer.ggml.remove_extra_whitespaces", False) is True
    has_prefix = merges_spaces or metadata.get("tokenizer.ggml.add_space_prefix", True) is True
    steps = [*((_ENDS, _RUNS) if merges_spaces else ()), *((PREPEND,) if has_prefix else ()), REPLACE]
    pieces = zip(vocabulary.tokens[:num_pieces], scores[:num_pieces], strict=True)
    return {
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": space_decoder(has_prefix),
        "model": {
            "type": "Unigram",
            "unk_id": next(iter(unknown.values())),
            "vocab": [[piece, float(score)] for piece, score in pieces],
            "byte_fallback": False,
        },
    }


def _spaces(document: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> tuple[bool, bool]:
    """(a space before the text, one space between words). raises InputError for any other preparation of the text"""
    normalizer, pre = document.get("normalizer"), document.get("pre_tokenizer")
    steps = normalizer.get("normalizers") if normalizer and normalizer.get("type") == "Sequence" else [normalizer]
    if pre is None and steps in ([PREPEND, REPLACE], [REPLACE], [_ENDS, _RUNS, PREPEND, REPLACE]):
        return PREPEND in steps, _RUNS in steps
    if normalizer is None and pre and pre.get("type") == "Metaspace":
        # Words are cut before pieces are chosen, which makes a difference only if a piece goes on into the next word. A
        # text that begins with a space gets another one, as SentencePiece has it and Metaspace has not.
        if not pre.get("split", True) or not any(SPACE in token[1:] for token in vocabulary.tokens):
            return pre.get("prepend_scheme") != "never", False
    raise InputError(
        f"{where}: the tokenizer's normalizer or pre-tokenizer is more than SentencePiece's spaces, which GGUF's "
        "'t5' tokenizer cannot say here; write a Hugging Face directory"
    )
