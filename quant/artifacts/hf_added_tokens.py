"""Tokens that the files next to a tokenizer.json name and it lacks: transformers adds them when it loads the folder."""

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from quant.errors import InputError, shown
from quant.json_file import read_json

ADDED_TOKENS, SPECIAL_TOKENS_MAP = "added_tokens.json", "special_tokens_map.json"
DECODER = "added_tokens_decoder"
NAMED = tuple(f"{kind}_token" for kind in ("bos", "eos", "unk", "sep", "pad", "cls", "mask"))
EXTRA = ("additional_special_tokens", "extra_special_tokens")
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def with_special_tokens_map(folder: Path, settings: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json as transformers reads it: the older file counts if there is no list of added tokens."""
    path = folder / SPECIAL_TOKENS_MAP
    return {**settings, **({} if DECODER in settings or not path.exists() else read_json(path))}


def add_missing_tokens(tokenizer: Tokenizer, folder: Path, settings: Mapping[str, Any], vocab_size: Any) -> bool:
    """Adds them in transformers' order; returns whether there were any.

    A token of `added_tokens_decoder` replaces one of other flags: such a list counts, and tokenizer.json does not.
    settings     of `with_special_tokens_map`
    vocab_size   rows of the embedding, if the config says it. A token behind them means nothing to the model, so it is
                 left out with a warning
    source       transformers 5, tokenization_utils_tokenizers.py, TokenizersBackend.__init__()
    """
    known = {token.content: _flags_of(token) for token in tokenizer.get_added_tokens_decoder().values()}
    rows = settings.get(DECODER)
    listed = {content_of(row) for row in rows.values()} if isinstance(rows, Mapping) else set()
    seen: set[str] = set()
    found = False
    for token in _named_tokens(folder, settings):
        if token.content in seen:
            continue
        seen.add(token.content)
        if token.content in known and (token.content not in listed or known[token.content] == _flags_of(token)):
            continue
        token_id = tokenizer.token_to_id(token.content)
        next_id = tokenizer.get_vocab_size(with_added_tokens=True)
        if token_id is None and isinstance(vocab_size, int) and next_id >= vocab_size:
            logging.getLogger(__name__).warning(
                "%s: token %s has no row in the embedding of %d; texts with it are cut as if it were none",
                folder,
                shown(token.content),
                vocab_size,
            )
            continue
        (tokenizer.add_special_tokens if token.special else tokenizer.add_tokens)([token])
        found = True
    return found


def content_of(token: Any) -> str | None:
    """The text of a token in a settings file: a string, or an object that has it."""
    token = token.get("content") if isinstance(token, Mapping) else token
    return token if isinstance(token, str) else None


def _flags_of(token: AddedToken) -> list[bool]:
    return [getattr(token, flag) for flag in _FLAGS]


def _named_tokens(folder: Path, settings: Mapping[str, Any]) -> Iterator[AddedToken]:
    named = [settings.get(key) for key in NAMED]
    for key in EXTRA:
        extra = settings.get(key) or []
        named += extra.values() if isinstance(extra, Mapping) else extra if isinstance(extra, list) else []
    yield from _listed(folder, settings, {content_of(token) for token in named})
    yield from (_added(token, special=True, normalized=False) for token in named if content_of(token))


def _listed(folder: Path, settings: Mapping[str, Any], special: set[str | None]) -> Iterator[AddedToken]:
    """Those with an id, in the order of the ids."""
    rows, path = settings.get(DECODER), folder / ADDED_TOKENS
    if rows is None and path.exists():
        ids = read_json(path)
        for text in sorted(ids, key=lambda text: _id_of(ids[text], path)):
            yield _added(text, special=text in special, normalized=text not in special)
    elif isinstance(rows, Mapping):
        for key in sorted(rows, key=lambda key: _id_of(key, folder)):
            if content_of(rows[key]):
                yield _added(rows[key], special=False, normalized=True)


def _id_of(value: Any, where: Path) -> int:
    """raises InputError unless it is a number, or the text of one"""
    if not str(value).isdecimal():
        raise InputError(f"{where}: the id of an added token is {shown(value)}, expected a number")
    return int(str(value)[:20])


def _added(token: Any, *, special: bool, normalized: bool) -> AddedToken:
    """With the flags of its object, else these."""
    flags: dict[str, bool] = {"special": special, "normalized": normalized}
    if isinstance(token, Mapping):
        flags |= {name: token[name] for name in _FLAGS if isinstance(token.get(name), bool)}
    return AddedToken(content_of(token) or "", **flags)
