"""A tokenizer between its two homes: `tokenizers` JSON and GGUF's tokenizer.ggml.* keys.

Four kinds of GGUF are known. "llama" (SentencePiece's BPE): characters with byte fallback, merges ordered by the score
of the merged token. "gpt2" (byte-level BPE): bytes written as printable characters, merges listed, words cut by a named
pre-tokenizer. "t5" (Unigram): the pieces of most probability. "bert" (WordPiece): the longest pieces of each word.

GGUF has no words for added tokens that take the spaces next to them, count as whole words, or are looked for behind the
normalizer. llama.cpp knows the first of the control tokens of Phi-3, by the file's name. Our own files say all of it in
keys of our own. Old tokenizers of Llama 2 look for tokens behind the normalizer: `</s>` after a letter is plain text
there, because the normalizer has put a visible space before the token's name, too.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from quant.artifacts import gguf_tokenizer_bpe as byte_level
from quant.artifacts import gguf_tokenizer_spm as sentencepiece
from quant.artifacts import gguf_tokenizer_ugm as unigram
from quant.artifacts import gguf_tokenizer_wpm as word_piece
from quant.artifacts.gguf_cursor import Value, Written
from quant.artifacts.gguf_keys import scalar
from quant.artifacts.gguf_vocabulary import (
    AddedToken,
    Vocabulary,
    special_tokens,
    unknown_of,
    vocabulary_from_json,
    vocabulary_from_metadata,
)
from quant.artifacts.stop_tokens import GGUF_KEYS, special_token
from quant.artifacts.tokenizer_json import json_of, load_tokenizer, normalizer_of
from quant.artifacts.tokenizer_parts import prepend
from quant.errors import InputError, shown
from quant.json_file import parse_json
from quant.source import TokenizerInfo

KINDS = {
    sentencepiece.MODEL: sentencepiece,
    byte_level.MODEL: byte_level,
    byte_level.GEMMA4: byte_level,
    unigram.MODEL: unigram,
    word_piece.MODEL: word_piece,
}
BY_TYPE = {"BPE": byte_level, "Unigram": unigram, "WordPiece": word_piece}  # a model's type in `tokenizers`
OTHERS = {"rwkv": "a trie of bytes", "plamo2": "a table of suffixes"}  # of llama.cpp
CHAT_TEMPLATE = "tokenizer.chat_template"
NONE = ("no_vocab", "none")  # llama.cpp's names for a model without a tokenizer
FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
KEY = "qbench.tokenizer.{}"  # the ids of the tokens that have the flag
# source: llama.cpp, llama_vocab::impl::load()
PHI3 = ("phi-3", "phi3")
PHI3_PLAIN = ("<unk>", "<s>", "<|endoftext|>")


def metadata_from_tokenizer(
    tokenizer: TokenizerInfo | None, vocab_size: int, where: str, stops: Sequence[int] = ()
) -> dict[str, Written]:
    """tokenizer.ggml.* keys.

    stops    tokens that end a text beyond the tokenizer's own
    raises   InputError for a tokenizer that GGUF cannot say
    """
    if tokenizer is None:
        return {"tokenizer.ggml.model": NONE[0]}
    return dict(_metadata_of(tokenizer, vocab_size, where, tuple(stops)))


@lru_cache(maxsize=1)  # a second of work for 150,000 words, which each recipe of a sweep asks for
def _metadata_of(
    tokenizer: TokenizerInfo, vocab_size: int, where: str, stops: tuple[int, ...]
) -> Mapping[str, Written]:
    loaded = load_tokenizer(tokenizer.json, where)
    document = _whole_document(loaded, tokenizer.json, where)
    model = document.get("model")
    if not isinstance(model, Mapping) or model.get("type") not in BY_TYPE:
        named = shown(model.get("type")) if isinstance(model, Mapping) else "missing"
        raise InputError(
            f"{where}: the tokenizer's model is {named}, and GGUF holds {', '.join(BY_TYPE)}; write a Hugging Face "
            "directory"
        )
    vocabulary, kind = vocabulary_from_json(document, vocab_size, where), BY_TYPE[model["type"]]
    if kind is byte_level and (model.get("byte_fallback") or sentencepiece.has_visible_spaces(document)):
        kind = sentencepiece
    metadata = {
        "model": kind.MODEL,
        "tokens": vocabulary.tokens,
        "token_type": vocabulary.types,
        **kind.metadata_from_json(document, vocabulary, where),
        **flags_to_metadata(document["added_tokens"] or [], normalizer_of(loaded, where), where),
        "bos_token_id": tokenizer.bos_token_id,
        **_end_tokens(tokenizer, stops, where),
        "unknown_token_id": vocabulary.find(unknown_of(model)),
        "add_bos_token": tokenizer.add_bos,
        "add_eos_token": False,
    }
    keys = {
        key if "." in key else f"tokenizer.ggml.{key}": value for key, value in metadata.items() if value is not None
    }
    return keys if tokenizer.chat_template is None else keys | {CHAT_TEMPLATE: tokenizer.chat_template}


def tokenizer_from_metadata(metadata: Mapping[str, Value], vocab_size: int, where: str) -> TokenizerInfo | None:
    """The tokenizer as `tokenizers` JSON, or None if the file has no tokenizer.

    raises   InputError for kinds, pre-tokenizers and shapes of data that are unknown
    """
    model = scalar(metadata, "tokenizer.ggml.model", str, where)
    if model is None or model in NONE:
        return None
    if model not in KINDS:
        kind = f" ({OTHERS[model]})" if model in OTHERS else ""
        raise InputError(
            f"{where}: tokenizer.ggml.model is {shown(model)}{kind}, known: {', '.join(KINDS)}, {NONE[0]}; read the "
            "model from its Hugging Face directory"
        )
    vocabulary = vocabulary_from_metadata(metadata, vocab_size, where)
    if KINDS[model] is word_piece:
        vocabulary = word_piece.words(vocabulary, where)
    ids = {key: _token_id(metadata, key, vocabulary, where) for key in ("bos_token_id", "eos_token_id")}
    wants_bos = metadata.get("tokenizer.ggml.add_bos_token", KINDS[model].adds_bos(metadata, where)) is True
    bos = ids["bos_token_id"]
    add_bos = wants_bos and bos is not None
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": with_flags(special_tokens(vocabulary), metadata, where),
        **KINDS[model].json_from_metadata(metadata, vocabulary, where),
    }
    if metadata.get("tokenizer.ggml.add_eos_token") is True and KINDS[model] is not word_piece:
        logging.getLogger(__name__).warning(
            "%s: tokenizer.ggml.add_eos_token is true: llama.cpp ends every text in EOS, and here a text goes on", where
        )
    if wants_bos and bos is not None:
        document["post_processor"] = prepend(vocabulary.tokens[bos], bos)
    template = scalar(metadata, CHAT_TEMPLATE, str, where)
    return TokenizerInfo(
        json.dumps(document, ensure_ascii=False), ids["bos_token_id"], ids["eos_token_id"], add_bos, template
    )


def _end_tokens(tokenizer: TokenizerInfo, stops: Sequence[int], where: str) -> dict[str, int]:
    """GGUF has a key for three tokens that end a text: of a text, of a turn, of a message."""
    ids = [token for token in dict.fromkeys((tokenizer.eos_token_id, *stops)) if token is not None]
    if len(ids) > len(GGUF_KEYS):
        logging.getLogger(__name__).warning(
            "%s: texts end in one of the tokens %s; GGUF has keys for %d, so other programs may go on after the rest",
            where,
            ", ".join(map(str, ids)),
            len(GGUF_KEYS),
        )
    return dict(zip(GGUF_KEYS, ids, strict=False))


def _whole_document(loaded: Tokenizer, text: str, where: str) -> dict[str, Any]:
    """The `tokenizers` JSON with all its keys: old documents leave some out, as GPT-2's own does with model.type.

    The library numbers added tokens itself if the vocabulary lacks them, so theirs are the ids of the text.
    """
    document = parse_json(json_of(loaded, f"{where}: tokenizer").encode(), f"{where}: tokenizer")
    return document | {"added_tokens": parse_json(text.encode(), f"{where}: tokenizer").get("added_tokens")}


def _token_id(metadata: Mapping[str, Value], key: str, vocabulary: Vocabulary, where: str) -> int | None:
    """The token. Like llama.cpp, warns about a key with an id beyond the vocabulary and goes on."""
    value, token = scalar(metadata, f"tokenizer.ggml.{key}", int, where), special_token(metadata, key, where)
    if value not in (None, token):
        logging.getLogger(__name__).warning(
            "%s: tokenizer.ggml.%s is %s, expected 0 to %d; taken as %s",
            where,
            key,
            shown(value),
            len(vocabulary.tokens) - 1,
            "absent" if token is None else token,
        )
    return token


def flags_to_metadata(
    added: Sequence[Mapping[str, Any]], normalize: Callable[[str], str], where: str
) -> dict[str, list[int]]:
    """Keys of the flags that make a difference.

    added      `added_tokens` of a `tokenizers` JSON document
    normalize  its normalizer, which leaves the names of most tokens as they are: then it may run before or after
    """
    ids = {flag: [token["id"] for token in added if token.get(flag)] for flag in FLAGS}
    ids["normalized"] = [
        token["id"] for token in added if token.get("normalized") and normalize(token["content"]) != token["content"]
    ]
    named = {KEY.format(flag): found for flag, found in ids.items() if found}
    if named:
        flags = [flag for flag, found in ids.items() if found]
        logging.getLogger(__name__).warning(
            "%s: added tokens have %s, which GGUF cannot say: other programs cut texts around them otherwise%s",
            where,
            " and ".join(flags),
            f", except llama.cpp if the file's name has {PHI3[0]}" if "rstrip" in flags else "",
        )
    return named


def with_flags(added: list[AddedToken], metadata: Mapping[str, Value], where: str) -> list[AddedToken]:
    """The tokens of a file with their flags. raises InputError for a key that is no list of ids"""
    name = str(metadata.get("general.name")).lower()
    keys = {flag: metadata.get(KEY.format(flag)) for flag in FLAGS}
    if any(part in name for part in PHI3) and not any(value is not None for value in keys.values()):
        return [{**token, "rstrip": token["content"] not in PHI3_PLAIN} for token in added]
    for flag, value in keys.items():
        if value is not None and not (isinstance(value, np.ndarray) and value.dtype.kind in "iu"):
            raise InputError(f"{where}: key {KEY.format(flag)!r} must be a list of token ids")
    ids = {flag: set() if value is None else set(np.asarray(value).tolist()) for flag, value in keys.items()}
    return [
        {
            **token,
            "lstrip": token["id"] in ids["lstrip"],
            "rstrip": token["id"] in ids["rstrip"],
            "single_word": token["id"] in ids["single_word"],
            "normalized": token["id"] in ids["normalized"],
        }
        for token in added
    ]
