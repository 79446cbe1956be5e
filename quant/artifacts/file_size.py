"""Bytes of a model's files on disk, next to those of its tensors."""

from pathlib import Path

from quant.artifacts.gguf_shards import shard_paths
from quant.artifacts.hf_reader import TEXT_FILES
from quant.safetensors.folder import weight_files
from quant.source import LocalSource, Source


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
