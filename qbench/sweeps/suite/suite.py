"""Suite: the cases of a sweep."""

import re
from dataclasses import dataclass

from qbench.calibration.options import SAMPLES
from qbench.measure.launch import MAX_LAUNCHES
from qbench.options.choices import check_threads
from qbench.quality.protocols.conventions import check_protocol
from qbench.speed.speed_case import SpeedCase
from qbench.sweeps.suite.axes import AXES, Axis
from qbench.sweeps.suite.rules import Rule
from qbench.tasks.settings import TaskSettings
from quant.errors import InputError

SCHEMA = 2  # of the file: its keys and their meanings
MEASURED = ("eval", "tasks", "bench")  # the sections of measurements


@dataclass(frozen=True, slots=True)
class EvalSettings:
    """Quality: windows of a text, compared with the unquantized model."""

    text: str | None = None  # a file, from the suite's folder; None: the reference models' held-out text
    max_windows: int | None = None  # None: the whole text
    protocols: tuple[str, ...] | None = None  # names as `qbench eval --protocol` knows them; None: gptq-2048

    def __post_init__(self) -> None:
        if self.max_windows is not None and self.max_windows < 1:
            raise InputError(f"max_windows is {self.max_windows}, expected at least 1")
        if self.protocols:
            for name in self.protocols:
                check_protocol(name)


@dataclass(frozen=True, slots=True)
class CalibrationSettings:
    """The calibration text of recipes that need one, as `qbench quantize` takes it."""

    text: str | None = None  # a file, from the suite's folder; None: one that fits the model
    samples: int = SAMPLES
    seq_len: int | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Suite:
    """The grid of its axes without the points of `exclude`; `eval`, `tasks` and `bench` are the measurements."""

    name: str
    models: tuple[str, ...]
    recipes: tuple[str, ...]
    description: str = ""
    schema: int = SCHEMA
    version: int = 1  # raised when it measures something else, so that its results stay apart
    kv_formats: tuple[str, ...] | None = None  # None: as each recipe says
    caches: tuple[str, ...] | None = None  # layouts, as in qbench.options.cache_spec; None: dynamic
    policies: tuple[str, ...] | None = None  # as in qbench.policies; None: full
    prefill_chunks: tuple[int, ...] | None = None  # tokens of a prompt per forward pass; None: all
    attention: tuple[str, ...] | None = None  # as in options.choices; None: the best that a model can have
    prefill: tuple[str, ...] | None = None  # as in qbench.prefill; None: dense
    kv_ram: tuple[str, ...] | None = None  # memory of the KV cache, as 2MiB; None: all, without a disk
    question: tuple[str, ...] | None = None  # of tasks, as in qbench.tasks.settings
    contexts: tuple[int, ...] | None = None  # tokens held before bench's phases; None: bench.depth
    batches: tuple[int, ...] | None = None  # None: 1
    threads: tuple[int | str, ...] | None = None  # None: every core that this process may use
    compute: tuple[str, ...] | None = None  # precision of the matmuls; None: fast
    isa: tuple[str, ...] | None = None  # None: as QBENCH_ISA says, else the best that this machine has
    device: tuple[str, ...] | None = None  # None: cpu
    divisions: tuple[str, ...] | None = None  # among the ranks, as in qbench.options.rank_layout; None: one rank
    memory: tuple[str, ...] | None = None  # limits of the process, as in sweep.suite.memory_limit; None: no limit
    exclude: tuple[Rule, ...] = ()
    eval: EvalSettings | None = None
    tasks: TaskSettings | None = None
    bench: SpeedCase | None = None
    launches: int | None = None  # processes that measure each speed; None: 1
    calibration: CalibrationSettings | None = None  # None: the defaults

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w][\w.+-]*", self.name):
            raise InputError(f"suite name is {self.name!r}, expected letters, digits and . + - _ (it names a folder)")
        if self.schema > SCHEMA:
            raise InputError(f"suite {self.name}: schema {self.schema}, this qbench knows {SCHEMA}; use a newer qbench")
        for axis in AXES:
            self._check_axis(axis, getattr(self, axis.key))
        for threads in self.threads or ():
            if isinstance(threads, int):  # the only word is `axes.ALL`
                check_threads(threads, f"suite {self.name}: ")
        if self.eval is None and self.tasks is None and self.bench is None:
            raise InputError(f"suite {self.name}: neither eval, tasks nor bench is there, so nothing would be measured")
        if self.launches is not None and not 1 <= self.launches <= MAX_LAUNCHES:
            raise InputError(f"suite {self.name}: launches is {self.launches}, expected 1 to {MAX_LAUNCHES}")
        if self.question and (self.tasks is None or self.tasks.question):
            raise InputError(f"suite {self.name}: question is an axis of tasks, which lack or already name it")
        if self.bench is None:
            self._check_of_speed()
        for key, own in (("contexts", "depth"), ("batches", "batch")):
            if self.bench and getattr(self, key) and getattr(self.bench, own) != getattr(SpeedCase(), own):
                raise InputError(f"suite {self.name}: {key} and bench's {own} say the same; give one of them")

    def _check_axis(self, axis: Axis, values: tuple | None) -> None:
        if values is None:
            return
        if not values:
            raise InputError(f"suite {self.name}: {axis.key} is empty, expected at least one")
        if len(set(values)) != len(values):
            raise InputError(f"suite {self.name}: {axis.key} names the same twice: {', '.join(map(str, values))}")
        for value in values:
            if isinstance(value, int) and value < axis.least:
                raise InputError(f"suite {self.name}: {axis.key} has {value}, expected {axis.least} or more")

    def _check_of_speed(self) -> None:
        """Axes that change no token's logits need something that is timed."""
        axes = {
            "memory": self.memory,
            "threads": self.threads and self.threads[1:],
            "batches": self.batches,
            "contexts": self.contexts,
        }
        for key, values in axes.items():
            if values:
                raise InputError(f"suite {self.name}: {key} changes speed alone, and there is no bench; leave it out")
