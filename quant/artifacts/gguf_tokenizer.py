"""A tokenizer between its two homes: `tokenizers` JSON and GGUF's tokenizer.ggml.* keys.

Three kinds of GGUF are known. "llama" (SentencePiece's BPE): characters with byte fallback, merges ordered by the score
of the merged token. "gpt2" (byte-level BPE): bytes written as printable characters, merges listed, words cut by a named
pre-tokenizer. "t5" (Unigram): the pieces of most probability.
"""

import json
from collections.abc import Mapping

from quant.artifacts import gguf_tokenizer_bpe as byte_level
from quant.artifacts import gguf_tokenizer_spm as sentencepiece
from quant.artifacts import gguf_tokenizer_ugm as unigram
from quant.artifacts.gguf_cursor import Value, Written
from quant.artifacts.gguf_keys import scalar
from quant.artifacts.gguf_vocabulary import (
    Vocabulary,
    special_tokens,
    unknown_of,
    vocabulary_from_json,
    vocabulary_from_metadata,
)
from quant.artifacts.tokenizer_parts import Template, TemplatePart
from quant.errors import InputError, shown
from quant.json_file import parse_json
from quant.source import TokenizerInfo

KINDS = {sentencepiece.MODEL: sentencepiece, byte_level.MODEL: byte_level, unigram.MODEL: unigram}
CHAT_TEMPLATE = "tokenizer.chat_template"
NONE = ("no_vocab", "none")  # llama.cpp's names for a model without a tokenizer


def metadata_from_tokenizer(tokenizer: TokenizerInfo | None, vocab_size: int, where: str) -> dict[str, Written]:
    """tokenizer.ggml.* keys. raises InputError for a tokenizer that GGUF cannot say."""
    if tokenizer is None:
        return {"tokenizer.ggml.model": NONE[0]}
    document = parse_json(tokenizer.json.encode(), f"{where}: tokenizer")
    model = document.get("model")
    if not isinstance(model, Mapping) or model.get("type") not in ("BPE", "Unigram"):
        named = shown(model.get("type")) if isinstance(model, Mapping) else "missing"
        raise InputError(
            f"{where}: the tokenizer's model is {named}, and GGUF holds BPE and Unigram of models that generate text; "
            "write a Hugging Face directory"
        )
    vocabulary = vocabulary_from_json(document, vocab_size, where)
    kind = byte_level
    if model["type"] == "Unigram":
        kind = unigram
    elif model.get("byte_fallback") or sentencepiece.has_visible_spaces(document):
        kind = sentencepiece
    metadata = {
        "model": kind.MODEL,
        "tokens": vocabulary.tokens,
        "token_type": vocabulary.types,
        **kind.metadata_from_json(document, vocabulary, where),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "unknown_token_id": vocabulary.find(unknown_of(model)),
        "add_bos_token": tokenizer.add_bos,
        "add_eos_token": False,
    }
    keys = {f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None}
    return keys if tokenizer.chat_template is None else keys | {CHAT_TEMPLATE: tokenizer.chat_template}


def tokenizer_from_metadata(metadata: Mapping[str, Value], vocab_size: int, where: str) -> TokenizerInfo | None:
    """The tokenizer as `tokenizers` JSON, or None if the file has no tokenizer.

    raises   InputError for kinds, pre-tokenizers and shapes of data that are unknown
    """
    model = scalar(metadata, "tokenizer.ggml.model", str, where)
    if model is None or model in NONE:
        return None
    if model not in KINDS:
        raise InputError(f"{where}: tokenizer.ggml.model is {shown(model)}; known: {', '.join(KINDS)}, {NONE[0]}")
    vocabulary = vocabulary_from_metadata(metadata, vocab_size, where)
    ids = {key: _token_id(metadata, key, vocabulary, where) for key in ("bos_token_id", "eos_token_id")}
    wants_bos = metadata.get("tokenizer.ggml.add_bos_token", KINDS[model].ADD_BOS) is True
    bos = ids["bos_token_id"]
    add_bos = wants_bos and bos is not None
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special_tokens(vocabulary),
        **KINDS[model].json_from_metadata(metadata, vocabulary, where),
    }
    if wants_bos and bos is not None:
        document["post_processor"] = _prepend(vocabulary.tokens[bos], bos)
    template = scalar(metadata, CHAT_TEMPLATE, str, where)
    return TokenizerInfo(
        json.dumps(document, ensure_ascii=False), ids["bos_token_id"], ids["eos_token_id"], add_bos, template
    )


def _token_id(metadata: Mapping[str, Value], key: str, vocabulary: Vocabulary, where: str) -> int | None:
    value = scalar(metadata, f"tokenizer.ggml.{key}", int, where)
    if value is not None and not 0 <= value < len(vocabulary.tokens):
        raise InputError(f"{where}: tokenizer.ggml.{key} is {shown(value)}, expected 0 to {len(vocabulary.tokens) - 1}")
    return value


def _prepend(token: str, token_id: int) -> Template:
    """The post-processor that puts one special token before the text."""
    special: TemplatePart = {"SpecialToken": {"id": token, "type_id": 0}}
    single: list[TemplatePart] = [special, {"Sequence": {"id": "A", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, special, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {token: {"id": token, "ids": [token_id], "tokens": [token]}},
    }
