"""Typed look-ups in a config.json mapping. Null means absent; an impossible value is an InputError."""

import sys
from collections.abc import Mapping
from typing import Any

from quant.errors import InputError, shown

Config = Mapping[str, Any]
MOST = 2**31 - 1  # no dimension of a real model comes near; past it, products stop fitting in 64 bits
# Bounds of the table of tensors, which is made before it is compared with a file's own tensors.
MOST_LAYERS = 4096  # the deepest published decoder has below 300
MOST_EXPERTS = 4096  # of one layer; the published ones have up to 512


class RenamedConfig(dict[str, Any]):
    """A config in the usual keys. own: the key that each of them has in the file, if that is another"""

    def __init__(self, values: Config, own: Mapping[str, str]) -> None:
        super().__init__(values)
        self.own = own


def spelled(config: Config, key: str) -> str:
    """The key as the file has it, for messages."""
    return config.own.get(key, key) if isinstance(config, RenamedConfig) else key


def count(config: Config, key: str, default: int | None = None, *, least: int = 1, most: int = MOST) -> int:
    """most: the longest list or table that the caller makes of it."""
    value = _value(config, key, default)
    if type(value) is not int or not least <= value <= most:
        upper = "2**31 - 1" if most == MOST else str(most)
        raise InputError(f"{spelled(config, key)} is {shown(value)}, expected a whole number from {least} to {upper}")
    return value


def number(config: Config, key: str, default: float | None = None) -> float:
    value = _value(config, key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= sys.float_info.max:
        raise InputError(f"{spelled(config, key)} is {shown(value)}, expected a number above 0")
    return float(value)


def flag(config: Config, key: str) -> bool:
    value = _value(config, key, False)
    if not isinstance(value, bool):
        raise InputError(f"{spelled(config, key)} is {shown(value)}, expected true or false")
    return value


def token_ids(config: Config, key: str) -> tuple[int, ...]:
    """Zero, one or several ids: null, 2 and [128001, 128009] all occur."""
    value = config.get(key)
    ids = [] if value is None else value if isinstance(value, list | tuple) else [value]
    if not all(type(token) is int for token in ids):
        raise InputError(f"{spelled(config, key)} is {shown(value)}, expected a token id or a list of them")
    return tuple(ids)


def _value(config: Config, key: str, default: Any) -> Any:
    value = config.get(key)
    value = default if value is None else value
    if value is None:
        raise InputError(f"key {spelled(config, key)!r} is missing; a model of this kind needs it")
    return value


ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}


def activation_of(config: Config) -> str:
    """raises InputError for a function that is not supported"""
    name = config.get("hidden_act")
    name = "silu" if name is None else name
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise InputError(
            f"{spelled(config, 'hidden_act')} {shown(name)} is not supported; known: {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]
