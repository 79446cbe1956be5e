"""The KV format of a model in a GGUF file: a key of our own, which other readers pass over."""

import json
from collections.abc import Mapping

from quant.artifacts.gguf_cursor import Value
from quant.errors import InputError, shown
from quant.kv.scheme import CONFIG_KEY, KVEntry
from quant.models.values import Config

GGUF_KEY = "qbench.kv_cache"  # a JSON string: the entry under CONFIG_KEY, a few numbers per layer


def metadata_from_kv(config: Config) -> dict[str, str]:
    """{GGUF key: value}; empty where the model names no KV format"""
    return {GGUF_KEY: json.dumps(config[CONFIG_KEY])} if config.get(CONFIG_KEY) is not None else {}


def kv_from_metadata(metadata: Mapping[str, Value], where: str) -> dict[str, KVEntry]:
    """{config key: entry}; empty if the file has no such key. raises InputError for a value that is no JSON"""
    value = metadata.get(GGUF_KEY)
    if value is None:
        return {}
    try:
        return {CONFIG_KEY: json.loads(value if isinstance(value, str) else "")}  # KVScheme.of checks the entry
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: key {GGUF_KEY!r} must be JSON, got {shown(value)}") from error
