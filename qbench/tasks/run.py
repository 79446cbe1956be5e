"""`run_tasks`: tasks on a loaded model, as the plain values that a record keeps."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast

from qbench.measure.host.commit import code_version
from qbench.measure.quality_figures import TaskResult
from qbench.progress import Progress
from qbench.run.choices import FAST
from qbench.run.work import TasksWork
from qbench.tasks.catalogue import Loaded, load_tasks
from qbench.tasks.quiet import quiet
from qbench.tasks.results import summarize_group, summarize_task
from quant.kv.scheme import CONFIG_KEY
from quant.present import present
from quant.source import Source

if TYPE_CHECKING:
    from lm_eval.api.model import LM

    from qbench.runtime.decoder_model import DecoderModel
    from qbench.tasks.model import TaskModel


def run_tasks(
    model: "DecoderModel",
    source: Source,
    settings: TasksWork,
    *,
    cache: Path | None = None,
    compute: str = FAST,
    progress: Progress | None = None,
) -> dict[str, TaskResult]:
    """Task or group -> its result.

    model     loaded from `source` with `compute`
    cache     folder that keeps each answer as it comes, so that a run that was stopped goes on
    raises    InputError for tasks that are unknown, not available, or impossible for this model
    """
    from lm_eval.evaluator import evaluate
    from lm_eval.tasks.manager import TaskDict

    from qbench.tasks.model import TaskModel

    with quiet(), tokenizer_folder(source) as tokenizer:
        lm = TaskModel(model, source, progress, settings.question)
        loaded = load_tasks(settings, tokenizer)
        cached, tasks = _cached(lm, source, compute, cache), TaskDict(**loaded)
        results = evaluate(cached, tasks, limit=settings.limit, bootstrap_iters=0)
    return _entries(loaded, dict(present(results)), compute, settings.question)


def _entries(loaded: Loaded, results: Mapping[str, Any], compute: str, question: str | None) -> dict[str, TaskResult]:
    entries = {
        name: summarize_task(task, results["samples"][name], results["results"][name], compute, question)
        for name, task in loaded["tasks"].items()
    }
    groups = {}
    for name, group in loaded["groups"].items():
        members = {task.task_name: entries[task.task_name] for task in group.get_all_tasks()}
        groups[name] = summarize_group(members, results["results"].get(name, {}))
    return {name: entry for name, entry in groups.items() if entry is not None} | entries


def _cached(lm: "TaskModel", source: Source, compute: str, folder: Path | None) -> "LM":
    """The model behind lm-eval's store of answers: a file for each model, cache, arithmetic and state of the code."""
    if folder is None:
        return lm
    from lm_eval.api.model import CachingLM

    how = (
        source.config.get(CONFIG_KEY),
        str(lm.model.cache_spec),
        lm.question,
        compute,
        sorted(lm.model.impls.items()),
    )
    identity = [source.fingerprint(), code_version(), *how]
    folder.mkdir(parents=True, exist_ok=True)
    cached = CachingLM(lm, str(folder / f"{hashlib.sha256(repr(identity).encode()).hexdigest()[:16]}.db"))
    return cast("LM", cached)  # which it is in all but its class: it hands on every attribute


@contextmanager
def tokenizer_folder(source: Source) -> Iterator[Path | None]:
    """A folder that transformers' AutoTokenizer reads, as long as the block runs; None if the source has no tokenizer.

    Any source has one, a GGUF file too: its tokenizer is kept as the JSON of `tokenizers`.
    """
    if source.tokenizer is None:
        yield None
        return
    with TemporaryDirectory(prefix="qbench-tokenizer-") as name:
        folder = Path(name)
        (folder / "tokenizer.json").write_text(source.tokenizer.json, encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}), encoding="utf-8"
        )
        yield folder
