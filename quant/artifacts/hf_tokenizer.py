"""The tokenizer of a Hugging Face directory: tokenizer.json with the settings of tokenizer_config.json."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from quant.artifacts.tokenizer_json import load_tokenizer
from quant.errors import InputError, shown
from quant.json_file import read_json
from quant.panics import panics_as
from quant.source import TokenizerInfo

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"  # newer files keep it here, older ones as a key of tokenizer_config.json


def read_tokenizer(folder: Path, config: Mapping[str, Any]) -> TokenizerInfo | None:
    """None if there is no tokenizer.json. raises InputError if one is there and cannot be used."""
    path = folder / TOKENIZER
    if not path.exists():
        return None
    read_json(path)
    text = path.read_text(encoding="utf-8")
    tokenizer = load_tokenizer(text, str(path))
    settings = read_json(folder / TOKENIZER_CONFIG) if (folder / TOKENIZER_CONFIG).exists() else {}
    ids = {}
    for kind in ("bos", "eos"):
        token = settings.get(f"{kind}_token")
        token = token.get("content") if isinstance(token, Mapping) else token
        found = tokenizer.token_to_id(token) if isinstance(token, str) else None
        ids[kind] = config_token_id(config, f"{kind}_token_id", str(folder)) if found is None else found
    add_bos = settings.get("add_bos_token")
    if add_bos is None:  # newer files leave it to the post-processor
        with panics_as(lambda error: InputError(f"{path}: the tokenizer cannot cut a text: {error}")):
            add_bos = tokenizer.encode("").ids[:1] == [ids["bos"]]
    add_bos = bool(add_bos) and ids["bos"] is not None
    return TokenizerInfo(text, ids["bos"], ids["eos"], add_bos, _chat_template(folder, settings))


def _chat_template(folder: Path, settings: Mapping[str, Any]) -> str | None:
    """The template, or the default one of several named ones. raises InputError if the key holds neither"""
    if (folder / CHAT_TEMPLATE).exists():
        return (folder / CHAT_TEMPLATE).read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {each.get("name"): each.get("template") for each in template if isinstance(each, Mapping)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise InputError(
            f"{folder / TOKENIZER_CONFIG}: chat_template is {shown(template)}, expected the text of a template"
        )
    return template


def config_token_id(config: Mapping[str, Any], key: str, where: str) -> int | None:
    """A token id of config.json; of several end tokens the first."""
    value = config.get(key)
    value = value[0] if isinstance(value, list) and value else value
    if value is not None and (type(value) is not int or value < 0):
        raise InputError(f"{where}: config key {key!r} must be a token id, got {shown(value)}")
    return value


def write_tokenizer(folder: Path, tokenizer: TokenizerInfo, context: int) -> None:
    """tokenizer.json and the tokenizer_config.json that transformers needs with it."""
    (folder / TOKENIZER).write_text(tokenizer.json, encoding="utf-8")
    loaded = load_tokenizer(tokenizer.json, TOKENIZER)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None if tokenizer.bos_token_id is None else loaded.id_to_token(tokenizer.bos_token_id),
        "eos_token": None if tokenizer.eos_token_id is None else loaded.id_to_token(tokenizer.eos_token_id),
        "add_bos_token": tokenizer.add_bos,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
        **({} if tokenizer.chat_template is None else {"chat_template": tokenizer.chat_template}),
    }
    (folder / TOKENIZER_CONFIG).write_text(json.dumps(settings, indent=2, ensure_ascii=False) + "\n")
