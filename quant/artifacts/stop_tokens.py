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
from quant.artifacts.gguf_vocabulary import CONTROL
from quant.errors import InputError
from quant.json_file import read_json
from quant.models.values import Config, token_ids
from quant.source import TokenizerInfo

T = TypeVar("T")
EOS = "eos_token_id"
GENERATION_CONFIG = "generation_config.json"
GGUF_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Control tokens that close a turn wherever they are in a vocabulary; llama.cpp takes them for that, too.
TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|END_OF_TURN_TOKEN|>")


def hf_stop_tokens(folder: Path, config: Config) -> dict[str, list[int]]:
    """eos_token_id as the folder's files name it together, the config's own first; empty if they add nothing.

    raises   InputError naming the file
    """
    path = folder / GENERATION_CONFIG
    if not path.exists():
        return {}
    try:
        own, others = token_ids(config, EOS), token_ids(read_json(path), EOS)
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
    """eos_token_id as the keys and the vocabulary's control tokens name it; a key of no token says nothing.

    raises   InputError for a key of another type
    """
    named: list[Value | None] = [scalar(metadata, f"tokenizer.ggml.{key}", int, where) for key in GGUF_KEYS]
    tokens = metadata.get("tokenizer.ggml.tokens")
    count = len(tokens) if isinstance(tokens, list) else sys.maxsize
    known = [token for token in named if isinstance(token, int) and 0 <= token < count]
    ids = _joined([*known, *_turn_ends(metadata)])
    return {} if not ids else {EOS: ids if len(ids) > 1 else ids[0]}


def _turn_ends(metadata: Mapping[str, Value]) -> list[Value]:
    tokens, types = (metadata.get(f"tokenizer.ggml.{key}") for key in ("tokens", "token_type"))
    if not isinstance(tokens, list) or not isinstance(types, list | np.ndarray) or len(tokens) != len(types):
        return []
    return [index for index, kind in enumerate(types) if kind == CONTROL and tokens[index] in TURN_ENDS]


def _joined(ids: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(ids))
