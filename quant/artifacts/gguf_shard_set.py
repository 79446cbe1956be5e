"""The shards of one model, which become visible together."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quant.artifacts.gguf_header import is_gguf
from quant.artifacts.gguf_shards import shard_path, shards_named
from quant.artifacts.manifest import manifest_path
from quant.atomic import fsync, temporary_path
from quant.errors import InputError


@contextmanager
def atomic_shards(path: Path, count: int, *, needed_bytes: int = 0) -> Iterator[list[Path]]:
    """Yields a temporary path for each shard of NAME.gguf; when the block ends well they take their names.

    Many files cannot be renamed in one step, and a set without its first shard opens nowhere: so the first shard of
    an older set goes first, and the first of this one comes last. Killed at any moment, there is the old set, this set,
    or no set that opens; never a mixture. Older sets of NAME go, whatever their count.
    raises   InputError as `atomic_file`, and if a file of such a name is no GGUF file
    """
    old = replaceable_shards(path)
    finals = [shard_path(path, number, count) for number in range(1, count + 1)]
    with temporary_path(path, lambda _: True, needed_bytes) as folder:  # NAME.gguf itself is left alone
        folder.mkdir()
        temps = [folder / final.name for final in finals]
        yield temps
        for temp in temps:
            fsync(temp)
        for file in old:
            file.unlink()
            manifest_path(file).unlink(missing_ok=True)  # later: a set that opens has its manifest
        fsync(path.parent)
        for temp, final in zip(temps[1:], finals[1:], strict=True):
            os.replace(temp, final)
        fsync(path.parent)
        os.replace(temps[0], finals[0])


def replaceable_shards(path: Path) -> list[Path]:
    """The files that a set of shards of NAME.gguf replaces. raises InputError if one of them is no GGUF file"""
    old = shards_named(path)
    strange = next((file for file in old if not is_gguf(file)), None)
    if strange is not None:
        raise InputError(f"{strange} exists and is something else; remove it or write to another name")
    return old
