"""Models measured now, on the same text or tasks, as the records that a comparison takes."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from qbench.compare.side import Record
from qbench.measure.records.record import make_record
from qbench.products import AUTO
from qbench.progress import Progress
from qbench.quality.evaluate import evaluate
from qbench.sources import open_source
from qbench.tasks.evaluate import evaluate_tasks
from qbench.tasks.settings import TaskSettings
from quant.artifacts.file_bytes import sha256_file
from quant.errors import InputError

REFERENCE_MODEL = "ref:"
OPTION = {"protocols": "--protocol"}  # field -> the option that gives it, where that has another name


@dataclass(frozen=True, slots=True)
class Measuring:
    """How models are measured.

    reference   the unquantized model; None takes the reference model among those compared, if there is one
    text        a UTF-8 file; None takes the held-out text of a reference model
    """

    reference: str | None = None
    text: str | None = None
    windows: int | None = None  # None: all of the text's
    protocols: tuple[str, ...] = ()  # names as `conventions.make_plans` knows them; none: gptq-2048
    tasks: str | None = None  # lm-eval's, separated by commas, in place of a text
    limit: int | None = None  # the first items of each task; None: all
    products: str | None = None  # how models multiply; None: auto
    threads: int | None = None  # None: every core

    def __post_init__(self) -> None:
        of_text = [name for name in ("reference", "text", "windows", "protocols") if getattr(self, name)]
        if self.tasks is not None and of_text:
            raise InputError(f"--tasks stands in place of a text: leave out {_option(of_text[0])}, or --tasks")
        if self.tasks is None and self.limit is not None:
            raise InputError("--limit is of tasks' items: name some with --tasks")

    @property
    def task_settings(self) -> TaskSettings:
        return TaskSettings(tuple(name.strip() for name in self.tasks.split(",")), self.limit)

    def require_nothing(self, what: str) -> None:
        """raises InputError if anything is asked for, since `what` is measured already"""
        given = [name for name in self.__slots__ if getattr(self, name) not in (None, ())]
        if given:
            raise InputError(f"{what} is measured already: {', '.join(map(_option, given))} is for models")


def _option(field: str) -> str:
    return OPTION.get(field, f"--{field}")


def measure_models(specs: Sequence[str], measuring: Measuring, progress: Progress | None = None) -> list[Record]:
    """A record of each model's quality. raises InputError as `evaluate`"""
    if measuring.reference is None and measuring.tasks is None:
        beside = next((spec for spec in specs if spec.startswith(REFERENCE_MODEL)), None)
        measuring = replace(measuring, reference=beside)
    cases = [_case(spec, measuring) for spec in specs]  # a model that cannot be opened is told before any is measured
    return [_record(case, measuring, progress) for case in cases]


def _record(case: dict[str, Any], measuring: Measuring, progress: Progress | None) -> Record:
    how = {"threads": measuring.threads, "products": measuring.products or AUTO}
    if case["tasks"] is not None:
        settings = TaskSettings(**case["tasks"])
        done = evaluate_tasks(case["model"], settings, progress=progress, **how)
        return make_record(case, done)
    quality = evaluate(
        case["model"],
        reference=measuring.reference,
        text=measuring.text,
        max_windows=measuring.windows,
        protocols=measuring.protocols,
        progress=progress,
        **how,
    )
    return make_record(case, quality)


def _case(spec: str, measuring: Measuring) -> dict[str, Any]:
    """As a sweep's, of a model that is measured as it is stored."""
    about = {"model": spec, "fingerprint": open_source(spec).fingerprint(), "recipe": None, "device": "cpu", "batch": 1}
    about |= {"products": measuring.products} if measuring.products not in (None, AUTO) else {}
    if measuring.tasks is not None:
        return {**about, "eval": None, "tasks": asdict(measuring.task_settings), "bench": None}
    settings: dict[str, Any] = {"text": measuring.text, "max_windows": measuring.windows}
    if measuring.protocols:
        settings["protocols"] = list(measuring.protocols)
    if measuring.text is not None:
        settings["text_sha256"] = sha256_file(Path(measuring.text))
    return {**about, "reference": measuring.reference, "eval": settings, "tasks": None, "bench": None}
