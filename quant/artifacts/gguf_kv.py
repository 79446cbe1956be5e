"""The KV format of a model in a GGUF file: a key of our own, which other readers pass over."""

import json
from collections.abc import Mapping
from typing import Any

from quant.errors import InputError
from quant.kv.scheme import CONFIG_KEY

GGUF_KEY = "qbench.kv_cache"  # a JSON string: the entry under CONFIG_KEY, a few numbers a layer


def metadata_from_kv(config: Mapping[str, Any]) -> dict[str, str]:
    """{GGUF key: value}; empty where the model names no KV format"""
    return {GGUF_KEY: json.dumps(config[CONFIG_KEY])} if config.get(CONFIG_KEY) is not None else {}


def kv_from_metadata(metadata: Mapping[str, Any], where: str) -> dict[str, Any]:
    """{config key: entry}; empty where the file has none. raises InputError for a value that is no JSON"""
    value = metadata.get(GGUF_KEY)
    if value is None:
        return {}
    try:
        return {CONFIG_KEY: json.loads(value)}
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: key {GGUF_KEY!r} must be JSON, got {value!r:.80}") from error
