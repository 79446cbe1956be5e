"""The disk store that belongs to a model, its KV format and the pages of an engine."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.model import Model
from qbench.runtime.tiers.aligned import fastest_read_mode
from qbench.runtime.tiers.disk_store import DiskStore
from qbench.runtime.tiers.store_identity import StoreIdentity
from quant.kv import KVScheme
from quant.kv_names import FLOAT32
from quant.source import Source

DISK_BYTES = 10 << 30


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """folder     of the store; several processes may share it
    max_bytes  of all files in it
    """

    folder: Path
    max_bytes: int = DISK_BYTES


def store_opener(
    source: Source, model: Model, compute: str, options: StoreOptions | None
) -> Callable[[PagePool], DiskStore] | None:
    """Return the function by which `Engine` opens its block store; None without options.

    source   of the model's weights, which are hashed here: seconds for a large file
    compute  precision of the matmuls
    """
    if options is None:
        return None
    fingerprint, given = source.fingerprint(), options

    def open_store(pool: PagePool) -> DiskStore:
        identity = StoreIdentity(
            model=fingerprint,
            kv_format=scheme_name(model.kv),
            compute=compute,
            layout=pool.layout,
            page_size=pool.page_size,
            block_bytes=pool.block_bytes,
        )
        store = DiskStore(given.folder, identity, given.max_bytes)
        store.read_mode = fastest_read_mode(given.folder)
        return store

    return open_store


def scheme_name(scheme: KVScheme | None) -> str:
    """The KV format's name, with a digest of its scales if they were calibrated."""
    if scheme is None:
        return FLOAT32
    if scheme.k_scale is None or scheme.v_scale is None:
        return scheme.format.name
    scales = hashlib.blake2b(scheme.k_scale.tobytes() + scheme.v_scale.tobytes(), digest_size=8)
    return f"{scheme.format.name} {scales.hexdigest()}"
