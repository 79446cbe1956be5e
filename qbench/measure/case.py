"""`Case`: the definition of one measurement of a model, without its results."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from qbench.options.cache_spec import DENSE, DYNAMIC, FULL, CacheSpec
from qbench.options.choices import CPU, FAST
from quant.json_data import JsonRow


@dataclass(frozen=True, slots=True)
class QualityCase(JsonRow):
    """The text that is scored. text_sha256: of the file at that path, which may be edited."""

    json_omits: ClassVar[tuple[str, ...]] = ("protocols", "text_sha256")

    text: str | None = None
    max_windows: int | None = None
    protocols: tuple[str, ...] = ()
    text_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class TasksCase(JsonRow):
    """Fields of TaskSettings."""

    json_omits: ClassVar[tuple[str, ...]] = ("limit", "num_fewshot", "include", "metadata", "question")

    names: tuple[str, ...] = ()
    limit: int | None = None
    num_fewshot: int | None = None
    include: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    question: str | None = None


@dataclass(frozen=True, slots=True)
class SpeedWork(JsonRow):
    """Fields of SpeedCase, apart from the batch."""

    json_omits: ClassVar[tuple[str, ...]] = ("precision", "budget_s")

    pp: int = 0
    tg: int = 0
    depth: int = 0
    repetitions: int = 1
    precision: float | None = None
    budget_s: float | None = None


@dataclass(frozen=True, slots=True)
class CalibrationCase(JsonRow):
    """Fields of CalibrationOptions. text_sha256: of the file at that path, which may be edited."""

    json_keys: ClassVar[Mapping[str, str]] = {"seq_len": "length"}  # the word of manifests
    json_omits: ClassVar[tuple[str, ...]] = ("text_sha256",)

    text: str | None = None
    samples: int | None = None
    seq_len: int | None = None
    seed: int = 0
    text_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class Case(JsonRow):
    """One point of a suite's grid and its measurements; a part is None if it is not measured.

    recipe_sha256  of a recipe that is a file
    kv_format      of the KV cache, the recipe's own included
    attention      the code that computes it; None: the best that the model can have
    prefill        blocks of the attention matrix that a prefill computes
    memory         limit of the process, as a suite has it; None: no limit
    kv_ram         bytes of memory for keys and values, with the rest on a disk; None: all are in memory
    division       among ranks, as `RankLayout` writes it; None: one rank
    context        tokens that a sequence's cache holds at most
    kind, of       "again" and the key of the first row, for a speed that another process measures again
    launch         its number from 3 on
    """

    json_keys: ClassVar[Mapping[str, str]] = {
        "quality": "eval",
        "speed": "bench",
    }
    # Left out unless they are asked for, so that rows of older code keep their keys.
    json_omits: ClassVar[tuple[str, ...]] = (
        "recipe_sha256",
        "cache",
        "policy",
        "prefill_chunk",
        "attention",
        "prefill",
        "kv_ram",
        "compute",
        "division",
        "memory",
        "tasks",
        "calibration",
        "kind",
        "of",
        "launch",
    )

    model: str
    fingerprint: str | None = None
    recipe: str | None = None
    recipe_sha256: str | None = None
    kv_format: str | None = None
    isa: str | None = None
    device: str = CPU
    threads: int | None = None
    cache: str = DYNAMIC
    policy: str = FULL
    prefill_chunk: int | None = None
    attention: str | None = None
    prefill: str = DENSE
    kv_ram: int | None = None
    compute: str = FAST
    division: str | None = None
    memory: str | None = None
    context: int | None = None
    batch: int = 1
    quality: QualityCase | None = None
    tasks: TasksCase | None = None
    speed: SpeedWork | None = None
    calibration: CalibrationCase | None = None
    kind: str | None = None
    of: str | None = None
    launch: int | None = None

    @property
    def cache_spec(self) -> CacheSpec:
        return CacheSpec(self.cache, self.policy, self.prefill_chunk, self.prefill, self.kv_ram)
