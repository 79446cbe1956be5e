"""A model's tokenizer as a folder, for tasks that measure their texts in tokens, such as RULER's."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from quant.source import Source


@contextmanager
def tokenizer_folder(source: Source) -> Iterator[Path | None]:
    """A folder that transformers' AutoTokenizer reads, as long as the block runs; None if the source has no tokenizer.

    Any source has one, a GGUF file too: its tokenizer is kept as the JSON of `tokenizers`.
    """
    if source.tokenizer is None:
        yield None
        return
    with TemporaryDirectory(prefix="qbench-tokenizer-") as name:
        folder = Path(name)
        (folder / "tokenizer.json").write_text(source.tokenizer.json, encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}), encoding="utf-8"
        )
        yield folder
