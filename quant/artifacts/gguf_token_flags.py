"""Added tokens that take the spaces next to them, count as whole words, or are looked for behind the normalizer.

GGUF has no words for it. llama.cpp knows the first of the control tokens of Phi-3, by the file's name. Our own files
say all of it in keys of our own. Old tokenizers of Llama 2 look for tokens behind the normalizer: `</s>` after a letter
is plain text there, because the normalizer has put a visible space before the token's name, too.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quant.artifacts.gguf_cursor import Value
from quant.artifacts.gguf_vocabulary import AddedToken
from quant.errors import InputError

FLAGS = ("lstrip", "rstrip", "single_word", "normalized")
KEY = "qbench.tokenizer.{}"  # the ids of the tokens that have the flag
# source: llama.cpp, llama_vocab::impl::load()
PHI3 = ("phi-3", "phi3")
PHI3_PLAIN = ("<unk>", "<s>", "<|endoftext|>")


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
