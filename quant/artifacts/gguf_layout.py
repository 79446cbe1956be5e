"""Contents of a GGUF file of a model, in order: a model's own tensors, experts stacked, and the factors of its RoPE."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quant.artifacts.gguf_header import DEFAULT_ALIGNMENT
from quant.artifacts.gguf_reader import ROPE_FREQS
from quant.errors import InputError
from quant.formats import get_format
from quant.models import ExpectedTensor, ModelConfig, expected_tensors
from quant.present import present
from quant.source import Source


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor of the file. names: the canonical tensors whose bytes follow each other in it; (): RoPE's factors

    shape   out x in, with the number of experts first if it stacks several
    """

    gguf_name: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    gguf_type: int
    size_bytes: int

    @property
    def padded_bytes(self) -> int:
        return -(-self.size_bytes // DEFAULT_ALIGNMENT) * DEFAULT_ALIGNMENT


def rope_factors(config: ModelConfig) -> np.ndarray | None:
    """GGUF's factors of a scaling whose parameters it has no keys for: [rope_dim // 2] float32"""
    has_factors = config.rope.rope_type == "llama3" or config.rope.has_fixed_factors
    return config.rope.frequency_divisors(config.rope_dim) if has_factors else None


def layout(source: Source, config: ModelConfig) -> list[Entry]:
    """RoPE's factors first, then the source's order; a stack is at the place of its first member.

    raises   InputError where members of one stack have unlike formats
    """
    factors = rope_factors(config)
    entries = [] if factors is None else [Entry(ROPE_FREQS, (), factors.shape, 0, factors.nbytes)]
    expected = expected_tensors(config)
    stacks = _stacks(expected)
    for name, info in source.tensors.items():
        want = expected[name]
        names = stacks[want.gguf_name]
        if name == names[0]:
            shape = info.shape if want.expert is None else (len(names), *info.shape)
            if want.gguf_rows:
                shape = (sum(source.tensors[member].shape[0] for member in names), *info.shape[1:])
            entries.append(_entry(source, want.gguf_name, names, shape))
    return entries


def _stacks(expected: dict[str, ExpectedTensor]) -> dict[str, tuple[str, ...]]:
    """GGUF name -> the canonical names of the tensor's parts, in order"""
    stacks: dict[str, tuple[str, ...]] = {}
    for name, want in expected.items():
        stacks[want.gguf_name] = (*stacks.get(want.gguf_name, ()), name)
    return stacks


def _entry(source: Source, gguf_name: str, names: tuple[str, ...], shape: tuple[int, ...]) -> Entry:
    infos = [source.tensors[name] for name in names]
    formats = sorted({info.format for info in infos})
    if len(formats) > 1:
        raise InputError(
            f"{gguf_name} stacks tensors of {', '.join(formats)}, and GGUF gives a stack one type; "
            f"give all of them one format (first: {names[0]})"
        )
    return Entry(
        gguf_name, names, shape, present(get_format(formats[0]).gguf_type), sum(info.size_bytes for info in infos)
    )


def split_entries(entries: list[Entry], counts: list[int]) -> Iterator[list[Entry]]:
    """The entries of each shard; counts: how many each takes"""
    start = 0
    for count in counts:
        yield entries[start : start + count]
        start += count
