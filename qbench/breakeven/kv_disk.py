"""From which hit length on it pays to load keys and values from the disk instead of computing them."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbench.breakeven.prefill import SIZES, prompt_of
from qbench.breakeven.question import Question, Settings, question
from qbench.breakeven.verdict import Answer, Point
from qbench.calibration.open_subject import open_subject
from qbench.progress import Progress
from qbench.runtime import Model, load_model
from qbench.runtime.caches.places.pages import PagePool
from qbench.runtime.engine import Engine, EngineOptions, Request, StoreOptions, store_opener
from qbench.runtime.tiers.aligned import drop_from_page_cache
from qbench.runtime.tiers.block_store import BlockStore
from qbench.sources.open import FirstLayers
from qbench.statistics.speed import speed_ratio
from quant.errors import InputError
from quant.kv import KV_FORMATS
from quant.kv_names import FLOAT32
from quant.models import ModelConfig
from quant.source import Source

REST = 16  # tokens after the prefix, which both sides compute
DISK_BYTES = 64 << 30  # more than any prefix takes, so that nothing is evicted


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds to the first token of a fresh engine, and tokens that it got from the disk."""

    seconds: float
    hit_tokens: int


@question("kv-disk")
class KVDiskQuestion(Question):
    """Each KV format has a store of its own in the folder of temporary files.

    Two fresh engines take turns: one computes the prompt, the other opens the store as a restarted process does, with
    the files dropped from the page cache.
    """

    asks = "from which hit length on does loading keys and values from the disk beat computing them?"
    axis = "prefix tokens"

    def answers(self, spec: str, settings: Settings, progress: Progress | None = None) -> Iterator[Answer]:
        if settings.clock != "wall":
            raise InputError("CPU time leaves out the waiting for a disk; measure kv-disk without --cpu-time")
        formats = formats_of(settings)
        for number, kv_format in enumerate(formats):
            subject = open_subject(spec, replace(settings.options, kv_format=kv_format))
            source = subject.source
            if settings.num_layers is not None:
                source = FirstLayers(source, settings.num_layers)
            sizes = settings.sizes_within(SIZES, ModelConfig.of(source).max_positions - REST - 1)
            model = load_model(source, subject.options)
            assert isinstance(model, Model)  # on the CPU
            points = []
            for done, size in enumerate(sizes):
                if progress:
                    progress(number * len(sizes) + done, len(formats) * len(sizes), f"{kv_format}, {size} tokens")
                points.append(point_at(source, model, kv_format, size, settings))
            yield Answer.of(kv_format, points)


def formats_of(settings: Settings) -> Sequence[str]:
    """The KV formats asked for, or all whose pages several sequences may share and that need no calibration."""
    every = [FLOAT32, *(name for name, fmt in KV_FORMATS.items() if fmt.token_group == 1 and not fmt.calibrated)]
    for name in settings.alternatives:
        if name not in every:
            raise InputError(f"{name!r} is no KV format that a prefix store keeps; known: {', '.join(every)}")
    return settings.alternatives or every


def point_at(source: Source, model: Model, kv_format: str, size: int, settings: Settings) -> Point:
    size -= size % EngineOptions().page_size  # full pages are stored
    tokens = tuple(prompt_of(source, model.config.vocab_size, size + REST)[0].tolist())
    with tempfile.TemporaryDirectory(prefix="qbench-kv-") as folder:
        opener = store_opener(source, model, settings.options.compute, StoreOptions(Path(folder), DISK_BYTES))
        first_token(model, tokens, opener)
        sides = (lambda: first_token(model, tokens, None), lambda: _from_disk(model, tokens, opener, Path(folder)))
        samples = [tuple(side() for side in sides) for _ in range(settings.rounds)]
        num_bytes = sum(path.stat().st_size for path in files_of(Path(folder)))
    computed, loaded = zip(*samples, strict=True)
    if any(sample.hit_tokens != size for sample in loaded):
        raise RuntimeError(f"{[sample.hit_tokens for sample in loaded]} tokens came from the disk, expected {size}")
    ratio = speed_ratio([1 / each.seconds for each in computed], [1 / each.seconds for each in loaded])
    figures = {
        "computed_s": sorted(each.seconds for each in computed)[len(computed) // 2],
        "loaded_s": sorted(each.seconds for each in loaded)[len(loaded) // 2],
        "MB": num_bytes / 1e6,
    }
    return Point(size, kv_format, ratio.value, ratio.low, ratio.high, figures)


def _from_disk(model: Model, tokens: tuple[int, ...], opener: Callable | None, folder: Path) -> Sample:
    for path in files_of(folder):
        drop_from_page_cache(path)
    return first_token(model, tokens, opener)


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*/*/*") if path.is_file()]


def first_token(model: Model, tokens: tuple[int, ...], opener: Callable[[PagePool], BlockStore] | None) -> Sample:
    """A fresh engine up to its first token; the time to make it, and to open the store, counts."""
    begin = time.perf_counter()
    page_size = EngineOptions().page_size
    engine = Engine(model, EngineOptions(num_pages=len(tokens) // page_size + 2, max_batch=1), open_store=opener)
    engine.submit(Request(tokens, max_new_tokens=1, stop_ids=()))
    while engine.has_work:
        engine.step()
    seconds = time.perf_counter() - begin
    store = engine.stats().store
    engine.close()
    return Sample(seconds, 0 if store is None else store.hit_tokens)
