"""The most that a Hugging Face directory takes beyond the bytes of its tensors, before it is written."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory

from quant.artifacts.hf_tokenizer import write_tokenizer
from quant.models import ModelConfig
from quant.source import Source

PARTS = 3  # of a quantized linear: codes, scales, shape
# An entry of the header and one of the index of shards, apart from the tensor's name: dtype, shape and offsets of up to
# 13 digits each, and the name of a shard. The shape of a quantized linear is a tensor of 16 bytes.
ENTRY_BYTES = 256
NAMED = 3  # times that config.json and the header of a part may say a module: target, index, entry
SCHEMES_BYTES = 8192  # of config.json: the schemes of all formats, and the KV format


def directory_head_bytes(source: Source) -> int:
    """config.json, tokenizer, headers and index; no manifest, which no loader reads."""
    config = json.dumps(source.config, indent=2, ensure_ascii=False).encode()
    names = PARTS * sum(NAMED * len(name.encode()) + ENTRY_BYTES for name in source.tensors)
    return len(config) + SCHEMES_BYTES + names + _tokenizer_bytes(source)


def _tokenizer_bytes(source: Source) -> int:
    if source.tokenizer is None:
        return 0
    with TemporaryDirectory() as folder:
        write_tokenizer(Path(folder), source.tokenizer, ModelConfig.of(source).max_positions)
        return sum(path.stat().st_size for path in Path(folder).iterdir())
