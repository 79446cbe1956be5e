"""Where calibration text comes from: a table from the form of a spec to a reader of token ids.

FILE.txt        UTF-8 text (any other suffix too)
FILE.jsonl      one JSON object a line: {"text": ...}, or token ids as {"tokens": [...]} or a bare list
FILE.npy        token ids, an integer array of any shape
generated       documents of the reference models' language, never a held-out one
random          ids drawn uniformly, for rand: models, whose speed and memory do not depend on them
real:NAME       one of the texts that `make real` fetches, see `qbench.real`
hf:NAME[@SPLIT] the "text" column of a dataset, through the `datasets` package; NAME may be a local folder
"""

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from qbench.reference.corpus import EOS, documents
from qbench.run.work import GENERATED, HUB, RANDOM, text_file
from qbench.runtime.text.tokenizer import Tokenizer
from qbench.words.written import read_text_file
from quant.errors import InputError
from quant.models import ModelConfig
from quant.regular_file import open_regular
from quant.source import Source

Tokens = Iterator[np.ndarray]  # runs of token ids [n] int64, which follow each other in the text


def default_text(source: Source) -> str:
    """raises InputError for a model that no text is known for"""
    if source.spec.startswith("ref:"):
        return GENERATED
    if source.spec.startswith("rand:"):
        return RANDOM
    raise InputError(
        f"{source.spec}: the recipe calibrates, and no text is known for this model; give `qbench quantize` "
        "--calibration FILE (.txt, .jsonl, .npy) or hf:NAME, and measure what it writes"
    )


def read_tokens(spec: str, source: Source, seed: int) -> Tokens:
    """The token ids of a text, a run at a time: no more is read than is asked for.

    raises   InputError for a file that cannot be read, or has no text in it
    """
    if spec in (GENERATED, RANDOM):
        return (_generated if spec == GENERATED else _random)(source, seed)
    if spec.startswith(HUB):
        return _encoded(source, _hub_texts(spec.removeprefix(HUB)))
    path = text_file(spec) or Path(spec)
    return READERS.get(path.suffix, _text_file)(path, source)


def _generated(source: Source, seed: int) -> Tokens:
    return _encoded(source, (EOS + document for document in documents(seed)))


def _random(source: Source, seed: int) -> Tokens:
    rng, vocab_size = Random(seed), ModelConfig.of(source).vocab_size
    while True:
        yield np.array([rng.randrange(vocab_size) for _ in range(4096)], dtype=np.int64)


def _text_file(path: Path, source: Source) -> Tokens:
    return _encoded(source, [_read(path)])


def _json_lines(path: Path, source: Source) -> Tokens:
    """Texts or token ids, whichever the first line has."""
    rows = [_json_row(path, number, line) for number, line in enumerate(_read(path).splitlines(), 1) if line.strip()]
    kinds = {kind for kind, _ in rows}
    if len(kinds) > 1:
        raise InputError(f"{path}: some lines have text and some token ids; make two files of them")
    values = (value for _, value in rows)
    return _encoded(source, values) if kinds == {"text"} else (_ids(path, value) for value in values)


def _json_row(path: Path, number: int, line: str) -> tuple[str, Any]:
    """("text", str) or ("tokens", list)"""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(f"{path}: line {number} is not JSON ({error})") from error
    row = {"tokens": row} if isinstance(row, list) else row
    if isinstance(row, dict) and isinstance(row.get("text"), str):
        return "text", row["text"]
    if isinstance(row, dict) and isinstance(row.get("tokens"), list):
        return "tokens", row["tokens"]
    raise InputError(f'{path}: line {number} has neither "text" nor "tokens"; one JSON object a line is expected')


def _array_file(path: Path, source: Source) -> Tokens:
    try:
        with open_regular(path) as file:
            array = np.load(file, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot read the token ids: {error}") from error
    return iter([_ids(path, array)])


READERS: dict[str, Callable[[Path, Source], Tokens]] = {".jsonl": _json_lines, ".npy": _array_file}


def _ids(path: Path, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError) as error:  # lists of unlike lengths
        raise InputError(f"{path}: token ids must be one list of whole numbers a line") from error
    if array.size and array.dtype.kind not in "iu":
        raise InputError(f"{path}: token ids must be whole numbers, got {array.dtype}")
    return array.reshape(-1).astype(np.int64)


def _encoded(source: Source, texts: Iterable[str]) -> Tokens:
    """Each text's ids, with BOS where the model expects one."""
    if source.tokenizer is None:
        raise InputError(f"{source.spec} has no tokenizer; calibrate on token ids (.npy, or .jsonl of lists)")
    tokenizer = Tokenizer(source.tokenizer)
    return (np.asarray(tokenizer.encode(text), dtype=np.int64) for text in texts)


def _hub_texts(name: str) -> Iterator[str]:
    try:
        from datasets import load_dataset
    except ImportError as error:
        raise InputError(f"hf:{name} needs the `datasets` package; pip install datasets") from error
    name, _, split = name.partition("@")
    try:
        rows = iter(load_dataset(name, split=split or "train", streaming=True))
        first = next(rows, {})
    except Exception as error:  # the package raises dozens of kinds, its own and others'
        raise InputError(f"hf:{name}: cannot load the dataset: {error}") from error
    if not isinstance(first.get("text"), str):
        raise InputError(f'hf:{name} has no column "text"; it has {", ".join(first) or "no rows"}')
    return chain([first["text"]], (row["text"] for row in rows))


def _read(path: Path) -> str:
    return read_text_file(path, "calibration text")
