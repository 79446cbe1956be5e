"""`compare`: from the words of the command line to judged comparisons."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from qbench.comparison.comparison import Comparison, compare_records
from qbench.comparison.measured import Measuring, measure_models
from qbench.comparison.noise_floor import measure_noise_floors
from qbench.comparison.rows import compare_sides, compare_with_baseline
from qbench.comparison.side import Rows, parse_side
from qbench.comparison.task_floor import measure_task_floors
from qbench.measure.records.kinds import FloorMetrics
from qbench.measure.records.record import Record, append_record
from qbench.measure.records.record_files import kept_file
from qbench.progress import Progress
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class Compared:
    """Requested comparisons, judged together, and the noise floors if they were measured."""

    comparisons: list[Comparison]
    noise_floors: Sequence[Record] = ()
    warning: str | None = None  # of rows that have no like


def compare(
    words: Sequence[str],
    measuring: Measuring,
    *,
    baseline: str | None = None,
    noise_floor: bool = False,
    keep: str | None = None,
    progress: Progress | None = None,
) -> Compared:
    """A and B, rows of records or two models; or one table of rows against its baseline.

    noise_floor   measure those of the model A, on the text under each protocol or on the tasks
    keep          file or folder to which new measurements are appended
    raises        InputError for words that name no comparison, rows that do not pair, unlike protocols
    """
    if not 1 <= len(words) <= 2:
        raise InputError(f"{len(words)} things to compare; give A and B, or one with --baseline")
    a = parse_side(words[0])
    b = parse_side(words[1], a and a.path) if len(words) == 2 else None
    if len(words) == 2 and (a is None) != (b is None):
        model, rows = words if a is None else reversed(words)
        raise InputError(f"{model} is a model and {rows} names rows of records; compare two of one kind")
    if a is None:
        if baseline is not None:
            raise InputError(f"{words[0]} is no file or folder of records, and a baseline is one of its rows")
        return _models(words, measuring, noise_floor, keep, progress)
    measuring.require_nothing(words[0])
    if noise_floor or keep is not None:
        raise InputError(f"{words[0]} is measured already: --noise-floor and --keep are for models")
    comparisons, warning = _rows(words[0], a, b, baseline)
    return Compared(comparisons, warning=warning)


def _rows(word: str, a: Rows, b: Rows | None, baseline: str | None) -> tuple[list[Comparison], str | None]:
    if b is not None and baseline is not None:
        raise InputError(f"a baseline is one of A's own rows: give {word} alone, or no --baseline")
    if b is not None:
        return compare_sides(a, b)
    if baseline is None:
        raise InputError(f"{word}: compared with what? Give --baseline RECIPE, or a second side such as :recipe=q4_0")
    return compare_with_baseline(a, baseline)


def _models(
    specs: Sequence[str], measuring: Measuring, noise_floor: bool, keep: str | None, progress: Progress | None
) -> Compared:
    if len(specs) == 1 and not noise_floor:
        raise InputError(f"{specs[0]}: compared with what? Give a second model, or --noise-floor for itself")
    measure_floors = measure_noise_floors if measuring.tasks is None else measure_task_floors
    floors = measure_floors(specs[0], measuring, progress) if noise_floor else []
    measured = measure_models(specs, measuring, progress) if len(specs) == 2 else []
    if keep is not None:
        for record in [*floors, *measured]:
            append_record(kept_file(Path(keep), record.machine.id), record)
    compared = [compare_records(measured[0], measured[1], _by_protocol(floors))] if measured else []
    return Compared(compared, floors)


def _by_protocol(floors: Sequence[Record]) -> dict[str | None, dict[str, float]]:
    """Protocol hash -> metric -> floor"""
    found: dict[str | None, dict[str, float]] = {}
    for record in floors:
        metrics = record.metrics
        if isinstance(metrics, FloorMetrics) and metrics.floor is not None:
            found[metrics.protocol_hash] = metrics.floor
    return found
