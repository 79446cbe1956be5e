"""sha256 of every byte of an artifact: of each file in its manifest, and of the manifest in itself; and their sizes.

The hashes of tensors leave out metadata, such as the base of RoPE, the end tokens and the layout of a directory.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from quant.artifacts.file_bytes import sha256_file
from quant.artifacts.gguf_shards import shard_paths
from quant.artifacts.hf_reader import TEXT_FILES
from quant.errors import InputError
from quant.safetensors.folder import weight_files
from quant.source import LocalSource, Source

MANIFEST = "qbench.json"
# The place of the manifest's digest in its text, which counts as zeros in the digest itself.
PLACE = re.compile(rb'(?<="digest": ")[0-9a-f]{64}(?=")')
BLANK = "0" * 64
# Files that programs read next to the weights: one of these that is not in a manifest was added later.
READ = (".json", ".jinja", ".safetensors", ".model", ".txt", ".py")


def digests_of_shards(paths: Sequence[Path]) -> dict[str, str]:
    """Number from 1 -> sha256 of the GGUF file; names may change as long as the manifest's follows."""
    return {str(number): sha256_file(path) for number, path in enumerate(paths, start=1)}


def digests_of_folder(folder: Path) -> dict[str, str]:
    """Path in the directory -> sha256 of each file except the manifest."""
    return {str(path.relative_to(folder)): sha256_file(path) for path in _files(folder)}


def sealed(text: str) -> str:
    """The text of a manifest whose digest is BLANK, with its digest."""
    return PLACE.sub(digest_of(text.encode()).encode(), text.encode(), count=1).decode()


def digest_of(text: bytes) -> str:
    """sha256 hex of a manifest's text without its digest"""
    return hashlib.sha256(PLACE.sub(BLANK.encode(), text, count=1)).hexdigest()


def changed_files(artifact: Path, manifest: Path, files: dict[str, str], digest: str) -> Iterator[tuple[str, str]]:
    """(file, difference) of every file whose bytes are not those that were written, the manifest among them.

    artifact   path of a directory, or of a GGUF file or one of its shards
    manifest   its file; files, digest: those that it holds
    """
    if digest_of(manifest.read_bytes()) != digest:
        yield manifest.name, "its bytes are not those that were written"
    if artifact.is_dir():
        paths = {str(path.relative_to(artifact)): path for path in _files(artifact)}
    else:
        paths = {str(number): path for number, path in enumerate(shard_paths(artifact), start=1)}
    for name, wanted in files.items():
        path = paths.get(name)
        if path is None:
            yield name, "the file is missing"
        elif sha256_file(path) != wanted:
            yield path.name, "its bytes are not those that were written"
    for name, path in paths.items():
        if name not in files and path.suffix in READ:
            yield name, "the file was added later"


def _files(folder: Path) -> Iterator[Path]:
    """raises InputError for a link out of the directory"""
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() and not path.is_file():
            raise InputError(f"{path}: a link to {path.readlink()}, which is no file")
        if path.is_file() and path != folder / MANIFEST:
            yield path


def file_bytes(source: Source) -> int | None:
    """Bytes of the files that a loader needs: weights, headers, tokenizer, and all arrays that a layout stores.

    None for a source without files of its own, such as rand:
    """
    if not isinstance(source, LocalSource):
        return None
    return sum(path.stat().st_size for path in model_files(source.path))


def model_files(path: Path) -> list[Path]:
    """Files of a GGUF model or of a Hugging Face directory; the manifest is not among them."""
    if path.suffix == ".gguf":
        return shard_paths(path)
    return [*weight_files(path), *(path / name for name in TEXT_FILES if (path / name).is_file())]
