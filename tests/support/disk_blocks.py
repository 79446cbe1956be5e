"""Blocks of random bytes in a `DiskStore`, each known by its number."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from qbench.runtime.tiers.block_store import BlockKey, BlockNote
from qbench.runtime.tiers.disk_store import DiskStore
from qbench.runtime.tiers.store_identity import StoreIdentity

BLOCK = 5000
IDENTITY = StoreIdentity("model", "kv-f16", "exact", "kernel-blocks-1", 16, BLOCK)
NOTE = BlockNote(1234.5, 0.25)
ROOT = b"r" * 16
PLENTY = 1 << 30


def key(number: int, root: bytes = ROOT) -> BlockKey:
    return BlockKey(root, number.to_bytes(16, "little"), number)


def block(number: int) -> np.ndarray:
    return np.random.default_rng(number).integers(0, 256, BLOCK, dtype=np.uint8)


def open_store(folder: Path, max_bytes: int = PLENTY, **changes) -> DiskStore:
    return DiskStore(folder, replace(IDENTITY, **changes), max_bytes)


def got(store: DiskStore, number: int, root: bytes = ROOT) -> bool:
    """Whether the block is there; it is then the right one."""
    out = np.zeros(store.block_bytes, dtype=np.uint8)
    note = store.get(key(number, root), out)
    assert note in (None, NOTE)
    assert note is None or (out == block(number)).all()
    return note is not None


def fill(store: DiskStore, *numbers: int) -> None:
    for number in numbers:
        assert store.put(key(number), block(number), NOTE)


def blocks_of(folder: Path) -> list[Path]:
    return [path for path in folder.glob("qbench-kv*/*/*") if not path.name.startswith(".")]


def size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
