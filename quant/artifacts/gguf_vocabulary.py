"""The token list that both kinds of GGUF tokenizer share: text and type by id."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from quant.artifacts.gguf_cursor import Value
from quant.errors import InputError, shown

# tokenizer.ggml.token_type
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
BYTE_TOKENS = {f"<0x{byte:02X}>" for byte in range(256)}
# Tokens that close a turn wherever they are in a vocabulary. They are control tokens, also if a file gives them another
# type: so llama.cpp has it.
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|END_OF_TURN_TOKEN|>")


class AddedToken(TypedDict):
    """One of the `added_tokens` of a `tokenizers` JSON document."""

    id: int
    content: str
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool
    special: bool


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """tokens[id] is the text, types[id] one of the six types; as long as the embedding has rows."""

    tokens: list[str]
    types: list[int]

    def find(self, token: str | None) -> int | None:
        return None if token is None or token not in self.tokens else self.tokens.index(token)

    def ids(self, *types: int) -> dict[str, int]:
        """text -> id of the tokens of these types, in id order"""
        return {token: i for i, (token, kind) in enumerate(zip(self.tokens, self.types, strict=True)) if kind in types}

    def stored(self) -> dict[str, int]:
        """text -> id of all but the padding"""
        return self.ids(NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE)


def vocabulary_from_json(document: Mapping[str, Any], vocab_size: int, where: str) -> Vocabulary:
    """Tokens of a `tokenizers` JSON document; ids that it leaves free up to `vocab_size` become unused padding."""
    model = document["model"]
    vocab, added = _ids_of(model, where), document.get("added_tokens") or []
    if not isinstance(vocab, Mapping) or not all(type(token_id) is int for token_id in vocab.values()):
        raise InputError(f"{where}: the tokenizer's vocab must map texts to ids")
    if not isinstance(added, list) or not all(
        isinstance(row, Mapping) and {"id", "content"} <= set(row) for row in added
    ):
        raise InputError(f"{where}: the tokenizer's added_tokens must be a list of objects with id and content")
    tokens = [f"[PAD{token_id}]" for token_id in range(vocab_size)]
    types = [UNUSED] * vocab_size
    byte_fallback = bool(model.get("byte_fallback"))
    rows = [(text, i, BYTE if byte_fallback and text in BYTE_TOKENS else NORMAL) for text, i in vocab.items()]
    rows += [(row["content"], row["id"], CONTROL if row.get("special") else USER_DEFINED) for row in added]
    for text, token_id, kind in rows:
        if type(token_id) is not int or not 0 <= token_id < vocab_size:
            raise InputError(
                f"{where}: token {shown(text)} has id {shown(token_id)}, and the embedding has {vocab_size} rows"
            )
        tokens[token_id] = text
        types[token_id] = UNKNOWN if text == unknown_of(model) else kind
    return Vocabulary(tokens, types)


def _ids_of(model: Mapping[str, Any], where: str) -> Any:
    """text -> id. raises InputError for the pieces of a Unigram model that are no pairs, or have a text twice"""
    pieces = model.get("vocab")
    if model.get("type") != "Unigram":
        return pieces
    if not isinstance(pieces, list) or not all(
        isinstance(piece, list) and len(piece) == 2 and isinstance(piece[0], str) and isinstance(piece[1], float | int)
        for piece in pieces
    ):
        raise InputError(f"{where}: the tokenizer's vocab must be a list of texts with scores")
    ids = {text: token_id for token_id, (text, _) in enumerate(pieces)}
    if len(ids) != len(pieces):
        raise InputError(f"{where}: the tokenizer's vocab has a text twice")
    return ids


def unknown_of(model: Mapping[str, Any]) -> str | None:
    """The text of the unknown token."""
    unknown, vocab = model.get("unk_id"), model.get("vocab")
    if isinstance(vocab, list) and type(unknown) is int and 0 <= unknown < len(vocab):
        return vocab[unknown][0]
    return model.get("unk_token")


def vocabulary_from_metadata(metadata: Mapping[str, Value], vocab_size: int, where: str) -> Vocabulary:
    """Tokens of a GGUF file. raises InputError if lists are missing, of unlike length, or name a text twice."""
    tokens = string_list(metadata, "tokenizer.ggml.tokens", where)
    if len(tokens) != vocab_size:
        raise InputError(f"{where}: {len(tokens)} tokens for an embedding of {vocab_size} rows")
    types = [BYTE if token in BYTE_TOKENS else NORMAL for token in tokens]  # of a file without the key
    if metadata.get("tokenizer.ggml.token_type") is not None:
        types = number_list(metadata, "tokenizer.ggml.token_type", where)
    if len(types) != len(tokens):
        raise InputError(f"{where}: {len(types)} token types for {len(tokens)} tokens")
    if len(set(tokens)) != len(tokens):
        raise InputError(f"{where}: tokenizer.ggml.tokens has a text twice")
    kinds = [CONTROL if token in TURN_ENDS else kind for token, kind in zip(tokens, types, strict=True)]
    return Vocabulary(tokens, kinds)


def special_tokens(vocabulary: Vocabulary) -> list[AddedToken]:
    """The `added_tokens` of a `tokenizers` JSON document."""
    return [
        {
            "id": token_id,
            "content": token,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": vocabulary.types[token_id] != USER_DEFINED,
        }
        for token, token_id in vocabulary.ids(UNKNOWN, CONTROL, USER_DEFINED).items()
    ]


def merge_pairs(model: Mapping[str, Any], where: str) -> list[tuple[str, str]]:
    """The merges of a `tokenizers` model in either spelling, "a b" or ["a", "b"]."""
    merges = model.get("merges")
    pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges] if merges else []
    if not isinstance(merges, list) or not all(isinstance(pair, list) and len(pair) == 2 for pair in pairs):
        raise InputError(f"{where}: the tokenizer's merges must be a list of pairs")
    return [(first, second) for first, second in pairs]


def string_list(metadata: Mapping[str, Value], key: str, where: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list):
        raise InputError(f"{where}: key {key!r} must be a list of strings, got {type(value).__name__}")
    return value


def number_list(metadata: Mapping[str, Value], key: str, where: str) -> list[Any]:
    value = metadata.get(key)
    if not isinstance(value, np.ndarray):
        raise InputError(f"{where}: key {key!r} must be a list of numbers, got {type(value).__name__}")
    return value.tolist()
