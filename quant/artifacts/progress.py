"""How far a write has come."""

from collections.abc import Callable, Iterable, Iterator

from quant.source import Source

Progress = Callable[[int, int, str], None]  # bytes done, bytes in all, tensor name


def each_tensor(source: Source, progress: Progress | None, names: Iterable[str] | None = None) -> Iterator[str]:
    """Every tensor's name in order; `progress` hears of one when the next is asked for.

    names   the same in another order
    """
    total, done = sum(info.size_bytes for info in source.tensors.values()), 0
    for name in source.tensors if names is None else names:
        yield name
        done += source.tensors[name].size_bytes
        if progress is not None:
            progress(done, total, name)
