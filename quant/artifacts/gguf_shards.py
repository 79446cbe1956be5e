"""One model in one GGUF file or in several named NAME-00001-of-0000N.gguf."""

import re
from collections.abc import Sequence
from pathlib import Path

from quant.artifacts.gguf_cursor import Value
from quant.artifacts.gguf_header import GGUFHeader, read_header
from quant.artifacts.gguf_keys import scalar
from quant.errors import InputError

SHARD_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")
MAX_SHARDS = (1 << 16) - 1  # split.count is a uint16


def shard_path(path: Path, number: int, count: int) -> Path:
    """NAME.gguf -> NAME-00002-of-00003.gguf; numbers run from 1."""
    return path.with_name(f"{path.stem}-{number:05d}-of-{count:05d}.gguf")


def first_shard(path: Path) -> Path:
    """The first file of the set that `path` is named after, or `path` itself."""
    match = SHARD_NAME.fullmatch(path.name)
    return path if match is None else path.with_name(f"{match['stem']}-00001-of-{match['count']}.gguf")


def shard_sizes(tensor_bytes: Sequence[int], max_bytes: int) -> list[int]:
    """How many tensors each shard takes, in order: as many as fit, and one at least.

    tensor_bytes   of each tensor with its padding; the header comes on top, as in llama.cpp's gguf-split
    raises         InputError if that makes more shards than their names can count
    """
    counts, filled = [0], 0
    for size in tensor_bytes:
        if counts[-1] and filled + size > max_bytes:
            counts.append(0)
            filled = 0
        counts[-1] += 1
        filled += size
    if len(counts) > MAX_SHARDS:
        raise InputError(f"shards of {max_bytes} bytes would be {len(counts)}, at most {MAX_SHARDS}; make them larger")
    return counts


def shards_named(path: Path) -> list[Path]:
    """Every existing file NAME-*-of-*.gguf of NAME.gguf, whatever its count; first shards come first."""
    found = [(match, file) for file in path.parent.glob("*.gguf") if (match := SHARD_NAME.fullmatch(file.name))]
    return [file for _, file in sorted((int(m["number"]), file) for m, file in found if m["stem"] == path.stem)]


def shard_paths(path: Path) -> list[Path]:
    """Every file of the model that `path` belongs to, in order. raises InputError naming those that are missing."""
    match = SHARD_NAME.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    if not 1 <= int(match["number"]) <= count:
        raise InputError(f"{path}: shard {int(match['number'])} of {count} cannot be; numbers run from 1 to {count}")
    paths = [path.with_name(f"{match['stem']}-{number:05d}-of-{count:05d}.gguf") for number in range(1, count + 1)]
    missing = [shard.name for shard in paths if not shard.is_file()]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise InputError(f"{path.parent}: {count} shards are expected; missing: {', '.join(missing[:3])}{more}")
    return paths


def read_shards(path: Path) -> GGUFHeader:
    """Metadata of the first shard, which has the model's, and the tensors of all.

    raises   InputError where the shards' own counts say that these files do not belong together
    """
    paths = shard_paths(path)
    headers = [read_header(shard) for shard in paths]
    tensors = dict(headers[0].tensors)
    for shard, header in zip(paths[1:], headers[1:], strict=True):
        twice = next((name for name in header.tensors if name in tensors), None)
        if twice is not None:
            raise InputError(f"{shard}: tensor {twice!r} is in another shard too")
        tensors |= header.tensors
    for index, (shard, header) in enumerate(zip(paths, headers, strict=True)):
        _check_split(shard, header.metadata, index, len(paths), len(tensors))
    return GGUFHeader(headers[0].metadata, tensors)


def _check_split(path: Path, metadata: dict[str, Value], index: int, num_shards: int, num_tensors: int) -> None:
    expected = {"split.no": index, "split.count": num_shards, "split.tensors.count": num_tensors}
    unsplit = {"split.no": 0, "split.count": 1, "split.tensors.count": num_tensors}
    for key, value in expected.items():
        got = scalar(metadata, key, int, str(path))
        got = unsplit[key] if got is None else got
        # A file that was never split may say 0 of 0.
        if got != value and not (num_shards == 1 and key == "split.count" and got == 0):
            raise InputError(
                f"{path}: {key} is {got}, expected {value}; shards belong together under "
                "their names NAME-00001-of-0000N.gguf"
            )
