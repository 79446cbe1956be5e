"""Importance matrices of llama.cpp for one model: read and written under the model's own tensor names.

RoPE's row order does not matter here: importance belongs to a linear's input features.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from quant.artifacts.imatrix_file import (
    CHUNK_TOKENS,
    ImatrixEntry,
    ImatrixFile,
    read_imatrix_file,
    write_gguf_layout,
    write_legacy_layout,
)
from quant.atomic import atomic_file
from quant.errors import InputError
from quant.models import ExpectedTensor, ModelConfig, expected_tensors
from quant.recipes.roles import is_decoder_linear
from quant.source import Source

LEGACY_SUFFIX = ".dat"
OUTSIDE = ("token_embd.weight", "output.weight")  # a tied head goes by either name


def read_imatrix(path: Path, source: Source) -> dict[str, np.ndarray]:
    """Canonical name of a linear's weight -> importance [K] float32, the mean of its squared inputs.

    An expert that no token reached has ones, as in llama-quantize. Embedding and head: if the file has them.
    raises   InputError for a file that is no imatrix, of another model, or without one of the decoder's linears
    """
    file = read_imatrix_file(path)
    expected = expected_tensors(ModelConfig.of(source))
    members, found = _members(expected), {}
    for gguf_name, names in members.items():
        if gguf_name in file.entries:
            num_matrices = _num_matrices(names, expected)
            found |= _split(file.entries[gguf_name], names, num_matrices, source, f"{path}: {gguf_name}")
    strange = next((name for name in file.entries if name not in members and name not in OUTSIDE), None)
    if strange is not None:
        raise InputError(f"{path}: {strange} is no tensor of {source.spec}; the matrix is of another model")
    missing = [name for names in members.values() for name in names if name not in found and is_decoder_linear(name)]
    if missing:
        raise InputError(
            f"{path}: lacks {len(missing)} linears of {source.spec} (first: {missing[0]}); the matrix is of another "
            "model or incomplete"
        )
    return found


def write_imatrix(
    path: Path,
    importance: Mapping[str, np.ndarray],
    source: Source,
    num_tokens: int | Mapping[str, int],
    datasets: Sequence[str] = (),
) -> None:
    """A file that llama-quantize reads: GGUF, or the older layout where the name ends in .dat.

    importance   canonical name -> [K] float32, mean of the squared inputs; all experts or no expert
    num_tokens   behind every mean, or by name
    datasets     sources of the tokens
    raises       InputError if a stack lacks an expert, or `path` cannot be written
    """
    entries = {}
    expected = expected_tensors(ModelConfig.of(source))
    for gguf_name, names in _members(expected).items():
        names = names[: _num_matrices(names, expected)]  # stacked rows have one input
        there = [name for name in names if name in importance]
        if not there:
            continue
        if len(there) < len(names):
            missing = next(name for name in names if name not in importance)
            raise InputError(f"{path}: {gguf_name} needs the importance of all its experts, {missing} has none")
        counts = [num_tokens if isinstance(num_tokens, int) else num_tokens[name] for name in names]
        means = np.stack([np.asarray(importance[name], dtype=np.float32) for name in names])
        entries[gguf_name] = ImatrixEntry(means, np.array(counts, dtype=np.int64))
    most = max((int(entry.counts.max()) for entry in entries.values()), default=0)
    file = ImatrixFile(entries, tuple(datasets), -(-most // CHUNK_TOKENS))
    with atomic_file(path, replaces=_is_imatrix) as temp:
        (write_legacy_layout if path.suffix == LEGACY_SUFFIX else write_gguf_layout)(file, temp)


def _is_imatrix(path: Path) -> bool:
    try:
        return bool(read_imatrix_file(path).entries)
    except InputError:
        return False


def _num_matrices(names: Sequence[str], expected: Mapping[str, ExpectedTensor]) -> int:
    """Number of inputs of a stacked GGUF tensor: one for each expert, and a single one for rows."""
    return 1 if expected[names[0]].gguf_rows else len(names)


def _members(expected: Mapping[str, ExpectedTensor]) -> dict[str, tuple[str, ...]]:
    """GGUF name of a matrix -> its canonical name, or in order those of experts or rows that it stacks"""
    members: dict[str, tuple[str, ...]] = {}
    for name, want in expected.items():
        if len(want.shape) > 1:
            members[want.gguf_name] = (*members.get(want.gguf_name, ()), name)
    return members


def _split(
    entry: ImatrixEntry, names: tuple[str, ...], num_matrices: int, source: Source, where: str
) -> dict[str, np.ndarray]:
    row_size = source.tensors[names[0]].shape[-1]
    if entry.means.size != num_matrices * row_size:
        raise InputError(
            f"{where} has {entry.means.size} values, {source.spec} needs {num_matrices} x {row_size}; the matrix is of "
            "another model"
        )
    means = entry.means.reshape(num_matrices, row_size)
    return {name: means[0] for name in names} if num_matrices == 1 else dict(zip(names, means, strict=True))
