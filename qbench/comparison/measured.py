"""Models measured now, on the same text or tasks, as the records that a comparison takes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qbench.measure.records.record import Record, make_record
from qbench.progress import Progress
from qbench.quality.evaluate import evaluate
from qbench.run.case import Case
from qbench.run.choices import FAST
from qbench.run.options import RunOptions
from qbench.run.work import QualityWork, TasksWork
from qbench.sources import open_source
from qbench.tasks.evaluate import evaluate_tasks
from qbench.words.written import names_in
from quant.artifacts.file_bytes import sha256_file
from quant.errors import InputError

REFERENCE_MODEL = "ref:"
OPTION = {"protocols": "--protocol"}  # field -> its option, if the option has another name


@dataclass(frozen=True, slots=True)
class Measuring:
    """How models are measured.

    reference   the unquantized model; None takes the reference model among those compared, if there is one
    text        a UTF-8 file; None takes the held-out text of a reference model
    """

    reference: str | None = None
    text: str | None = None
    windows: int | None = None  # None: all of the text's
    protocols: tuple[str, ...] = ()  # names as `conventions.make_scorings` knows them; empty: gptq-2048
    tasks: str | None = None  # lm-eval's, separated by commas, in place of a text
    limit: int | None = None  # the first items of each task; None: all
    compute: str | None = None  # precision of the matmuls; None: fast
    threads: int | None = None  # None: every core

    def __post_init__(self) -> None:
        of_text = [name for name in ("reference", "text", "windows", "protocols") if getattr(self, name)]
        if self.tasks is not None and of_text:
            raise InputError(f"--tasks stands in place of a text: leave out {_option(of_text[0])}, or --tasks")
        if self.tasks is None and self.limit is not None:
            raise InputError("--limit is of tasks' items: name some with --tasks")

    @property
    def options(self) -> RunOptions:
        return RunOptions(compute=self.compute or FAST, threads=self.threads)

    @property
    def quality_settings(self) -> QualityWork:
        return QualityWork(self.text, self.windows, self.protocols, reference=self.reference)

    @property
    def task_settings(self) -> TasksWork:
        return TasksWork(names_in(self.tasks or ""), self.limit)

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
    cases = [_case(spec, measuring) for spec in specs]  # fails before any measurement if a model cannot be opened
    return [_record(case, measuring, progress) for case in cases]


def _record(case: Case, measuring: Measuring, progress: Progress | None) -> Record:
    if case.tasks is not None:
        return make_record(
            case, evaluate_tasks(case.model, measuring.task_settings, measuring.options, progress=progress)
        )
    return make_record(case, evaluate(case.model, measuring.quality_settings, measuring.options, progress=progress))


def _case(spec: str, measuring: Measuring) -> Case:
    """As a sweep's, of a model that is measured as it is stored, so that it has no suite's axes."""
    quality, tasks, rest = None, None, ()
    if measuring.tasks is not None:
        tasks = replace(measuring.task_settings, explicit=frozenset({"limit", "num_fewshot", "include"}))
    else:
        text = measuring.text
        sha256 = None if text is None else sha256_file(Path(text))
        quality = QualityWork(text, measuring.windows, measuring.protocols, text_sha256=sha256)
        rest = (("reference", measuring.reference),)
    return Case(
        model=spec,
        fingerprint=open_source(spec).fingerprint(),
        compute=measuring.options.compute,
        quality=quality,
        tasks=tasks,
        lacks=frozenset({"kv_format", "isa", "threads", "context"}),
        explicit=frozenset({"tasks"}),
        rest=rest,
    )
