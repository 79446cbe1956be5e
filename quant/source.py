"""The interface of every model source, wherever its weights are."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from quant.qtensor import QTensor


@dataclass(frozen=True, slots=True)
class SharedInfo:
    """One entry of a QTensor's `shared`: its name, shape and NumPy dtype."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor as the source stores it, known without reading its bytes."""

    shape: tuple[int, ...]  # [N, K] or [N], Hugging Face orientation: out x in features
    format: str  # registry name in quant.formats
    size_bytes: int  # parts and shared arrays
    shared: tuple[SharedInfo, ...] = ()  # entries of its QTensor's `shared`

    @classmethod
    def of(cls, qtensor: QTensor) -> "TensorInfo":
        shared = tuple(SharedInfo(name, array.shape, array.dtype.name) for name, array in qtensor.shared.items())
        return cls(qtensor.shape, qtensor.format, qtensor.size_bytes, shared)

    def has_shared(self, name: str) -> bool:
        return any(shared.name == name for shared in self.shared)


@dataclass(frozen=True, slots=True)
class TokenizerInfo:
    """A tokenizer in the `tokenizers` JSON form, with the tokens that the model expects around the text.

    chat_template  Jinja source that lays out the messages of a conversation; None: the model was not made for any
    files          name -> content: settings of the tokenizer and of generation in a Hugging Face directory, which a
                   directory written from this one keeps as they are
    is_completed   whether json has tokens that the file itself lacks, and the files next to it name
    """

    json: str
    bos_token_id: int | None
    eos_token_id: int | None
    add_bos: bool
    chat_template: str | None = None
    files: Mapping[str, str] = field(default_factory=dict, compare=False)
    is_completed: bool = False


class Source(Protocol):
    """Config, tensors and tokenizer of one model. Tensors carry Hugging Face names and row order."""

    @property
    def spec(self) -> str:
        """The model as the user named it."""
        ...

    @property
    def tokenizer(self) -> TokenizerInfo | None:
        """None for a model that serves speed and memory measurements only (rand:)."""
        ...

    @property
    def config(self) -> Mapping[str, Any]:
        """The keys of a Hugging Face config.json."""
        ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Canonical name -> info, in file order."""
        ...

    def read(self, name: str) -> QTensor:
        """One tensor's bytes; nothing is kept, so peak memory is the caller's choice."""
        ...

    def fingerprint(self) -> str:
        """sha256 hex of config, tokenizer and weights: equal fingerprints are the same model."""
        ...


@runtime_checkable
class RowSource(Protocol):
    """A source that can give a large tensor a block of rows at a time."""

    def has_row_blocks(self, name: str) -> bool:
        """Whether the tensor's rows can be made without all of the tensor in memory."""
        ...

    def row_blocks(self, name: str, num_rows: int) -> Iterator[QTensor]:
        """The tensor as blocks of num_rows rows in order, the last one shorter; for tensors with `has_row_blocks`."""
        ...


def has_row_blocks(source: Source, name: str) -> bool:
    """Whether `row_blocks` holds one block at a time."""
    return isinstance(source, RowSource) and source.has_row_blocks(name)


def row_blocks(source: Source, name: str, num_rows: int) -> Iterator[QTensor]:
    """The tensor as blocks of num_rows rows in order, the last one shorter.

    Without `has_row_blocks` the whole tensor is read first, and the blocks are views of it.
    """
    if isinstance(source, RowSource) and source.has_row_blocks(name):
        yield from source.row_blocks(name, num_rows)
        return
    whole = source.read(name)
    for first in range(0, whole.shape[0], num_rows):
        yield whole.rows(first, first + num_rows)


def row_ranges(shape: tuple[int, ...], num_rows: int) -> Iterator[range]:
    """Rows of each block."""
    return (range(first, min(first + num_rows, shape[0])) for first in range(0, shape[0], num_rows))


class LocalSource:
    """The place of a model in the file system: its path, and `spec` or the path as the name."""

    def __init__(self, path: Path, spec: str | None = None) -> None:
        self.spec = spec or str(path)
        self.path = path


class SourceView:
    """`source` as it is; a view that shows something else of it replaces that attribute or method."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.spec = source.spec
        self.config: Mapping[str, Any] = source.config
        self.tensors: Mapping[str, TensorInfo] = source.tensors
        self.tokenizer = source.tokenizer

    def read(self, name: str) -> QTensor:
        return self.source.read(name)

    def fingerprint(self) -> str:
        return self.source.fingerprint()


class SameWeights(SourceView):
    """A view whose tensors are those of `source`, byte for byte."""

    def has_row_blocks(self, name: str) -> bool:
        return has_row_blocks(self.source, name)

    def row_blocks(self, name: str, num_rows: int) -> Iterator[QTensor]:
        return row_blocks(self.source, name, num_rows)
