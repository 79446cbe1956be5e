"""Quality, speed, comparisons, recommendations and sweeps as Python functions."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from qbench.api.run_arguments import with_run_arguments
from qbench.comparison.measured import Measuring
from qbench.comparison.run import compare as compare_words
from qbench.gate.options import suite_file
from qbench.measure.metrics import Metrics
from qbench.measure.records.record_files import default_folders
from qbench.progress import Update, progress_bar
from qbench.quality.evaluate import evaluate as evaluate_quality
from qbench.recommendation import Asked
from qbench.recommendation import recommend as search_recommendation
from qbench.recommendation.answer import Recommendation
from qbench.recommendation.candidates import KV_CHOICES
from qbench.run.case import Case
from qbench.run.options import RunOptions
from qbench.run.work import CalibrationWork, QualityWork, SpeedWork, TasksWork, fitting_sizes
from qbench.sources import open_source
from qbench.speed.bench import bench as bench_speed
from qbench.store import load_records
from qbench.sweeps.suite.load_suite import load_suite
from qbench.sweeps.sweep import OnEvent, SweepEvent, run_sweep
from qbench.tasks.evaluate import evaluate_tasks
from qbench.words.written import parse_bytes
from quant.models import ModelConfig


@with_run_arguments
def evaluate(
    model: str,
    *,
    options: RunOptions,
    reference: str | None = None,
    text: str | Path | None = None,
    windows: int | None = None,
    protocols: Sequence[str] = (),
    tasks: Sequence[str] = (),
    limit: int | None = None,
) -> Metrics:
    """Perplexity of a model, its divergence from a reference, or its scores on tasks.

    reference  the unquantized model, for the KL divergence; None: no divergence
    text       a UTF-8 file; None: the held-out text of a reference model
    windows    number of text windows to score; None: all
    protocols  as `qbench eval --protocol` names them
    tasks      tasks of lm-eval, instead of a text; limit: the first items of each
    returns    figures by name: `found.figure("perplexity")`, or everything: `found.to_json()`
    """
    with progress_bar(f"evaluate {model}") as update:
        if tasks:
            return evaluate_tasks(model, TasksWork(tuple(tasks), limit), options, progress=update)
        settings = QualityWork(None if text is None else str(text), windows, tuple(protocols), reference=reference)
        return evaluate_quality(model, settings, options, progress=update)


@with_run_arguments
def bench(
    model: str,
    *,
    options: RunOptions,
    pp: int | None = None,
    tg: int | None = None,
    depth: int = 0,
    batch: int = 1,
    repetitions: int = 5,
) -> Metrics:
    """Speed and memory of a model: prefill of `pp` tokens, then decode of `tg` tokens.

    pp, tg   None: 512 and 128, or as many as the model's context holds
    depth    tokens in the cache before each phase
    returns  figures by name: `found.figure("tg_tok_s")`, or everything: `found.to_json()`
    """
    if pp is None or tg is None:
        pp, tg = fitting_sizes(pp, tg, depth, ModelConfig.of(open_source(model)).max_positions)
    with progress_bar(f"bench {model}") as update:
        return bench_speed(model, SpeedWork(pp, tg, depth, repetitions, batch), options, progress=update)


def compare(
    a: str,
    b: str | None = None,
    *,
    baseline: str | None = None,
    reference: str | None = None,
    text: str | None = None,
    windows: int | None = None,
    tasks: str | None = None,
    limit: int | None = None,
    threads: int | None = None,
) -> pd.DataFrame:
    """Differences from A to B with intervals and verdicts; one row per metric.

    a, b      two models, measured now; or two rows of records, as in "results/quickstart:recipe=q4_k_m"
    baseline  instead of `b`: compare every row of the records `a` with this recipe's
    returns   columns a, b, metric, value_a, value_b, difference, low, high, verdict; `difference` is B over A
              for speeds and B minus A for other metrics, and low and high are its 95 % interval
    """
    measuring = Measuring(reference, text, windows, tasks=tasks, limit=limit, threads=threads)
    with progress_bar("compare") as update:
        found = compare_words([a] if b is None else [a, b], measuring, baseline=baseline, progress=update)
    rows = [
        {
            "a": _name(comparison.a.model_case),
            "b": _name(comparison.b.model_case),
            "metric": cell.metric,
            "value_a": cell.a,
            "value_b": cell.b,
            "difference": cell.estimate.value,
            "low": cell.estimate.low,
            "high": cell.estimate.high,
            "verdict": cell.verdict,
        }
        for comparison in found.comparisons
        for cell in comparison.cells
    ]
    return pd.DataFrame(rows)


def _name(case: Case) -> str:
    return case.model if case.recipe is None else f"{case.model} as {case.recipe}"


def recommend(
    model: str,
    memory: int | str,
    *,
    tps: float | None = None,
    context: int | None = None,
    batch: int = 1,
    recipes: Sequence[str] = (),
    kv_formats: Sequence[str] = KV_CHOICES,
    text: str | None = None,
    calibration: CalibrationWork | str | None = None,
    windows: int | None = 24,
    threads: int | None = None,
    folder: str | Path = "runs/recommend",
) -> Recommendation:
    """The recipe and KV format of least KL divergence that fit memory and speed; the points are measured now.

    memory   of the whole process, in bytes or as in "6GiB"
    tps      tokens per second of all sequences, at least
    recipes  to choose from; empty: ten without calibration, and with a calibration text four more
    calibration  a text file, `hf:DATASET`, or all options; None: only reference models can be calibrated
    folder   keeps each measurement, so that the next call need not repeat it
    returns  `answer` is None if nothing fits, and then `relaxations` has the nearest limits
    """
    size = parse_bytes(memory) if isinstance(memory, str) else memory
    work = CalibrationWork(text=calibration) if isinstance(calibration, str) else calibration
    asked = Asked(model, size, context, batch, tps, recipes, kv_formats, text, work, windows, threads)
    with progress_bar(f"recommend for {model}") as update:
        return search_recommendation(asked, folder=Path(folder), on_event=_shown(update))


def sweep(suite: str | Path, output: str | Path | None = None) -> pd.DataFrame:
    """Measure every case of a suite that the folder does not hold yet.

    suite    a YAML file, or the name of one that comes with qbench, such as "quickstart"
    output   folder of the records; None: runs/NAME
    returns  the rows of the folder, as in `results`; a case that failed has its error
    raises   InputError for a suite that cannot be read
    """
    loaded = load_suite(suite_file(str(suite)))
    folder = Path("runs") / loaded.name if output is None else Path(output)
    with progress_bar(loaded.name) as update:
        run_sweep(loaded, folder, _shown(update))
    return load_records(folder)


def _shown(update: Update) -> OnEvent:
    """Show the events of a sweep as progress."""

    def show(event: SweepEvent) -> None:
        if event.total:
            update(event.index, event.total, event.stage or event.kind)

    return show


def results(paths: str | Path | Iterable[str | Path] | None = None) -> pd.DataFrame:
    """The latest measurement of each case, one row each; the table of `qbench query "from results"`.

    paths    files of records, or folders of them; None: `results` and `runs` in the current folder
    raises   InputError for a file that cannot be read, and if no records are there
    """
    return load_records(default_folders() if paths is None else paths)
