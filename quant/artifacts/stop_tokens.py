"""The tokens that end a text: those of a config, and those that a model's other files add, for turns of a chat most.

A base model's config often names the end of a document alone, and the model that was tuned from it ends its turns in
another token, which is in generation_config.json, or in keys of a GGUF file, or nowhere but in the vocabulary.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeVar

import numpy as np

from quant.artifacts.gguf_cursor import Value
from quant.artifacts.gguf_keys import scalar
from quant.artifacts.gguf_vocabulary import CONTROL, TURN_ENDS
from quant.errors import InputError
from quant.json_file import read_json
from quant.models.values import Config, token_ids
from quant.source import TokenizerInfo

T = TypeVar("T")
EOS = "eos_token_id"
GENERATION_CONFIG = "generation_config.json"
GGUF_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# GGUF's tokenizer model -> key -> the token if the file lacks the key, or has an id beyond its vocabulary
USUAL_TOKENS = {
    "llama": {"bos_token_id": 1, "eos_token_id": 2},
    "bert": {"bos_token_id": 101, "unknown_token_id": 100},
}


def hf_stop_tokens(folder: Path, config: Config) -> dict[str, list[int]]:
    """eos_token_id as the folder's files name it together, the config's own first; empty if they add nothing.

    raises   InputError naming the file
    """
    path = folder / GENERATION_CONFIG
    if not path.exists():
        return {}
    generation = read_json(path)
    try:
        own, others = token_ids(config, EOS), token_ids(generation, EOS)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return {} if set(others) <= set(own) else {EOS: _joined((*own, *others))}


def with_tokenizers_end(config: Config, tokenizer: TokenizerInfo | None) -> dict[str, list[int]]:
    """eos_token_id with the tokenizer's own end behind those of the config; empty if it adds nothing.

    transformers obeys the config alone. vLLM and llama.cpp end a text at the tokenizer's token, too.
    """
    end, own = None if tokenizer is None else tokenizer.eos_token_id, token_ids(config, EOS)
    return {} if end is None or end in own else {EOS: [*own, end]}


def gguf_stop_tokens(metadata: Mapping[str, Value], where: str) -> dict[str, Value | list[Value]]:
    """eos_token_id as the keys and the vocabulary's names name it; a key of no token says nothing.

    raises   InputError for a key of another type
    """
    named = [special_token(metadata, key, where) for key in GGUF_KEYS]
    ids: list[Value] = _joined([*(token for token in named if token is not None), *_turn_ends(metadata)])
    return {} if not ids else {EOS: ids if len(ids) > 1 else ids[0]}


def special_token(metadata: Mapping[str, Value], key: str, where: str) -> int | None:
    """The token of a GGUF file that `tokenizer.ggml.{key}` names, else the usual one of its kind of tokenizer, or None.

    The usual one must be a control token: other files have a word there, as our own of tokenizers without BOS.
    raises   InputError for a key of another type
    source   llama.cpp, llama_vocab::impl::load(), which has 11 for byte-level BPE, too: Falcon's end of a text
    """
    value = scalar(metadata, f"tokenizer.ggml.{key}", int, where)
    tokens = metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, list) else sys.maxsize
    if value is not None and 0 <= value < count:
        return value
    usual = USUAL_TOKENS.get(str(metadata.get("tokenizer.ggml.model")), {}).get(key, count)
    types = metadata.get("tokenizer.ggml.token_type")
    if isinstance(types, np.ndarray) and (usual >= types.size or types[usual] != CONTROL):
        return None
    return usual if usual < count else None


def _turn_ends(metadata: Mapping[str, Value]) -> list[int]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return [index for index, token in enumerate(tokens) if token in TURN_ENDS] if isinstance(tokens, list) else []


def _joined(ids: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(ids))
