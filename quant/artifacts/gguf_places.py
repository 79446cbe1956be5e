"""The place of a model's tensor in a GGUF file: rows and experts are stacked, in ways that differ between files."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from quant.artifacts.gguf_header import GGUFTensor
from quant.artifacts.gguf_latent import SplitUp
from quant.errors import InputError
from quant.models import ExpectedTensor

STACK, GATE_UP = "_exps.", "ffn_gate_up_exps"
HALVES = ("ffn_gate_exps", "ffn_up_exps")  # of GATE_UP, in this order


@dataclass(frozen=True, slots=True)
class Place:
    """From `start` up to `stop` of the `count` equal pieces of the file's tensor `name`, which has this shape."""

    name: str
    shape: tuple[int, ...]
    start: int = 0
    stop: int = 1
    count: int = 1

    def cut(self, tensor: GGUFTensor | SplitUp, shape: tuple[int, ...]) -> GGUFTensor | SplitUp:
        """The tensor at this place, with this shape."""
        if tensor.shape == shape:
            return tensor
        assert isinstance(tensor, GGUFTensor)  # a latent's two tensors are no part of a stack
        piece = tensor.size_bytes // self.count
        start, size_bytes = tensor.start + self.start * piece, (self.stop - self.start) * piece
        return replace(tensor, shape=shape, start=start, size_bytes=size_bytes)


def find(
    tensors: Mapping[str, GGUFTensor | SplitUp], want: ExpectedTensor, stack_size: int, where: str
) -> tuple[str, GGUFTensor | SplitUp]:
    """Name in the file, and the part of it that the model needs.

    stack_size    number of experts or, in a stack of rows, rows of the tensor that it shares with others
    raises        InputError if the file does not have it, or has it in another shape
    """
    places = list(_places(want, stack_size))
    place = next((place for place in places if place.name in tensors), None)
    if place is None:
        raise InputError(f"{where}: tensor {places[0].name!r} is missing; the file is incomplete")
    tensor = tensors[place.name]
    if tensor.shape != place.shape:
        raise InputError(f"{where}: tensor {place.name!r} has shape {tensor.shape}, its metadata says {place.shape}")
    return place.name, place.cut(tensor, want.shape)


def stack_sizes(expected: Mapping[str, ExpectedTensor]) -> Counter[str]:
    """GGUF name of each stack -> its experts or rows; of a tensor by itself 1"""
    sizes: Counter[str] = Counter()
    for want in expected.values():
        sizes[want.gguf_name] += want.shape[0] if want.gguf_rows else 1
    return sizes


def _places(want: ExpectedTensor, stack_size: int) -> Iterator[Place]:
    """Possible places. An expert is in the stack of its kind, in one with gate and up of each expert as one, or by
    itself (old files).
    """
    name, expert = want.gguf_name, want.expert
    if want.gguf_rows:
        yield Place(name, (stack_size, *want.shape[1:]), want.gguf_rows.start, want.gguf_rows.stop, stack_size)
        return
    if expert is None:
        yield Place(name, want.shape)
        return
    rows, row_size = want.shape
    yield Place(name, (stack_size, rows, row_size), expert, expert + 1, stack_size)
    half = next((n for n, word in enumerate(HALVES) if word in name), None)
    if half is not None:
        both = name.replace(HALVES[half], GATE_UP)
        at = 2 * expert + half
        yield Place(both, (stack_size, 2 * rows, row_size), at, at + 1, 2 * stack_size)
    yield Place(name.replace(STACK, f".{expert}."), want.shape)
