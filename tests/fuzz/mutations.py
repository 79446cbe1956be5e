"""Mutations of bytes, of JSON-like trees and of GGUF files; all of a `random.Random`, so a seed repeats a case."""

import json
import struct
from functools import lru_cache
from random import Random
from typing import Any

from support.gguf_parts import GgufParts, packed

HOSTILE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 3, 7, 255, 4096, 2**16, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 10**40, 0.0,
    -0.0, 0.5, -1.5, 1e-300, 1e300, float("nan"), float("inf"), "", "a", "0", "-1", "\x00", "\ud7ff", "x" * 300, "{{",
    "../x", "Linear", "re:(.*)*X$", [], [0], ["a"], [[]], [None] * 50, {}, {"a": 1}, {"": {}},
)  # fmt: skip
WORDS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1)


def mutate_bytes(rng: Random, raw: bytes) -> bytes:
    """A few flips, cuts, copies, and words of extreme values."""
    data = bytearray(raw)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not data:
            return b"\0"
        at, kind = rng.randrange(len(data)), rng.randrange(6)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.randrange(256)
        elif kind == 2:
            del data[at : at + rng.choice((1, 4, 8, 1000))]
        elif kind == 3:
            data[at:at] = data[at : at + rng.choice((1, 8, 64))]
        elif kind == 4:
            size = rng.choice((1, 2, 4, 8))
            word = (rng.choice(WORDS) & (2 ** (8 * size) - 1)).to_bytes(size, "little")
            data[at : at + size] = word
        else:
            del data[at if rng.random() < 0.3 else rng.randrange(len(data)) :]
    return bytes(data)


def mutate_tree(rng: Random, tree: Any) -> Any:
    """The tree with a few values replaced, dropped, doubled, renamed, or nested."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        tree = _mutate_once(rng, tree)
    return tree


def _mutate_once(rng: Random, tree: Any) -> Any:
    if isinstance(tree, dict) and tree and rng.random() < 0.85:
        key = rng.choice(list(tree))
        kind = rng.random()
        if kind < 0.12:
            return {name: value for name, value in tree.items() if name != key}
        if kind < 0.2:
            return {rng.choice((key + "s", "x", "", rng.choice(list(tree)))) if name == key else name: value
                    for name, value in tree.items()}  # fmt: skip
        return {**tree, key: _mutate_once(rng, tree[key])}
    if isinstance(tree, list) and tree and rng.random() < 0.8:
        at = rng.randrange(len(tree))
        kind = rng.random()
        if kind < 0.15:
            return tree[:at] + tree[at + 1 :]
        if kind < 0.3:
            return tree[: at + 1] + tree[at:]
        return [*tree[:at], _mutate_once(rng, tree[at]), *tree[at + 1 :]]
    if isinstance(tree, str) and tree and rng.random() < 0.4:
        at = rng.randrange(len(tree))
        return tree[:at] + rng.choice(("", " ", "(", "*", "\n", "\x00", "é", tree)) + tree[at + 1 :]
    if isinstance(tree, int) and not isinstance(tree, bool) and rng.random() < 0.5:
        return rng.choice((tree + 1, tree - 1, -tree, 2 * tree, tree // 2, tree * 10**6))
    value = rng.choice(HOSTILE)
    return [tree] if rng.random() < 0.1 else value


def mutate_json(rng: Random, raw: bytes) -> bytes:
    """Mostly a mutated tree, sometimes mutated text."""
    if rng.random() < 0.15:
        return mutate_bytes(rng, raw)
    try:
        tree = _json_tree(raw)
    except (ValueError, RecursionError):
        return mutate_bytes(rng, raw)
    return json.dumps(mutate_tree(rng, tree)).encode()


@lru_cache(maxsize=32)
def _json_tree(seed: bytes) -> Any:
    """The tree of a seed, parsed once: mutations leave it as it is."""
    return json.loads(seed)


def mutate_gguf(rng: Random, raw: bytes, parts: GgufParts | None) -> bytes:
    """A mutated key, table entry or data byte of a file that is whole otherwise; sometimes mutated bytes."""
    if parts is None or rng.random() < 0.15:
        return mutate_bytes(rng, raw)
    changed = GgufParts(dict(parts.keys), list(parts.tensors), parts.data)
    for _ in range(rng.choice((1, 1, 2))):
        kind = rng.random()
        if kind < 0.55 and changed.keys:
            _mutate_key(rng, changed)
        elif kind < 0.75 and changed.tensors:
            _mutate_tensor(rng, changed)
        else:
            changed.data = mutate_bytes(rng, changed.data)
    return changed.bytes()


def _mutate_key(rng: Random, parts: GgufParts) -> None:
    key = rng.choice(list(parts.keys))
    kind = rng.random()
    if kind < 0.15:
        del parts.keys[key]
    elif kind < 0.5:
        try:
            parts.keys[key] = packed(rng.choice([value for value in HOSTILE if value is not None]))
        except (struct.error, ValueError, OverflowError, TypeError, UnicodeEncodeError):
            parts.keys[key] = (rng.randrange(14), b"\xff" * 8)
    elif kind < 0.6:
        parts.keys[key] = parts.keys[rng.choice(list(parts.keys))]
    else:
        value_type, value = parts.keys[key]
        parts.keys[key] = (value_type if rng.random() < 0.8 else rng.randrange(14), mutate_bytes(rng, value))


def _mutate_tensor(rng: Random, parts: GgufParts) -> None:
    at = rng.randrange(len(parts.tensors))
    name, dims, kind, offset = parts.tensors[at]
    choice = rng.randrange(5)
    if choice == 0:
        dims = [rng.choice((*WORDS, dim, dim * 2, 1)) for dim in dims]
    elif choice == 1:
        kind = rng.randrange(40)
    elif choice == 2:
        offset = rng.choice((*WORDS, offset + 1, offset + 32, max(0, offset - 32)))
    elif choice == 3:
        name = rng.choice((name + "x", "", parts.tensors[rng.randrange(len(parts.tensors))][0], "x" * 70_000))
    else:
        dims = dims[::-1] if rng.random() < 0.5 else [*dims, 1]
    parts.tensors[at] = (name, dims, kind, offset)
