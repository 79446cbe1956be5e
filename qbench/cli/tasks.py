"""`qbench eval MODEL --tasks ...`: lm-eval's tasks, in place of perplexity; its options as one object."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from qbench.cli.cache_options import Checked
from qbench.cli.option_group import with_options
from qbench.cli.output import print_json, print_pairs
from qbench.cli.progress import progress_bar
from qbench.cli.types import count_option
from qbench.run.options import RunOptions
from qbench.run.work import TasksWork, check_question
from qbench.words.written import names_in


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """Values of the options; None or empty for those that were not given."""

    tasks: str | None
    limit: int | None
    num_fewshot: int | None
    include_path: tuple[str, ...]
    metadata: dict[str, Any] | None
    answers: Path | None
    question: str | None


class JsonObject(click.ParamType):
    """'{"a": 1}' -> {"a": 1}"""

    name = "json"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, Any]:
        try:
            found = json.loads(value)
        except ValueError as error:
            self.fail(f"{value!r} is not JSON: {error}", param, ctx)
        if not isinstance(found, dict):
            self.fail(
                f'{value!r} is JSON, but no object; expected for example {{"max_seq_lengths": [4096]}}', param, ctx
            )
        return found


OPTIONS = (
    click.option(
        "--tasks",
        help="Tasks of lm-eval instead of perplexity, e.g. blimp,ref_sums; `list` prints those that work offline",
    ),
    count_option("--limit", help="Number of first items to use of each task  [default: all]"),
    count_option(
        "--num-fewshot",
        least=0,
        help="Number of solved examples in the prompt  [default: the task's own]",
    ),
    click.option("--include-path", multiple=True, help="Folder with more task files; may be given several times."),
    click.option(
        "--metadata",
        type=JsonObject(),
        help="JSON object that lm-eval passes to its tasks, e.g. '{\"max_seq_lengths\": [4096]}' for RULER.",
    ),
    click.option(
        "--question",
        type=Checked("question", check_question),
        help="When a policy compresses the context: the question is visible, hidden, or the second one of it.",
    ),
    click.option(
        "--answers",
        type=click.Path(path_type=Path),
        help="Folder that keeps each answer, so that a stopped run continues.",
    ),
)


def task_options(command: Callable) -> Callable:
    """Adds the options; the command gets them as `tasks`, a TaskOptions."""

    return with_options("tasks", TaskOptions, OPTIONS, command)


def check_tasks(options: TaskOptions, others: bool) -> None:
    """Tasks and perplexity are two runs, each with its own options."""
    if options.tasks is not None and others:
        raise click.UsageError("--tasks measures tasks alone; leave it out where perplexity and KLD are asked for")
    named = (
        options.limit,
        options.num_fewshot,
        options.include_path,
        options.metadata,
        options.answers,
        options.question,
    )
    if options.tasks is None and any(value not in (None, ()) for value in named):
        names = "--limit, --num-fewshot, --include-path, --metadata, --answers and --question"
        raise click.UsageError(f"{names} are about --tasks; name some")


def eval_tasks(model: str, tasks: TaskOptions, options: RunOptions, as_json: bool) -> None:
    from qbench.tasks.evaluate import evaluate_tasks
    from qbench.tasks.names import offline_names

    if tasks.tasks == "list":
        return click.echo("\n".join(offline_names()))
    names = names_in(tasks.tasks or "")
    settings = TasksWork(
        names, tasks.limit, tasks.num_fewshot, tasks.include_path, tasks.metadata or {}, tasks.question
    )
    with progress_bar(f"tasks of {model}") as update:
        result = evaluate_tasks(model, settings, options, cache=tasks.answers, progress=update).to_json()
    if as_json:
        print_json(result)
    else:
        print_pairs({"model": result["model"], "bits_per_weight": f"{result['bits_per_weight']:.4f}"})
        print_pairs({name: readable(entry) for name, entry in result["tasks"].items()})


def readable(entry: dict) -> str | None:
    """One task's figure with its interval or error, the number of items, and the task's other figures.

    Items that are all equal give no error.
    """
    if entry["value"] is None:
        return None
    spread = f"95 % {entry['interval'][0]:.4f} to {entry['interval'][1]:.4f}, " if entry["interval"] else ""
    error = f" ± {entry['error']:.4f}" if entry["error"] and not spread else ""
    others = {
        name.partition(",")[0]: value for name, value in (entry.get("metrics") or {}).items() if value is not None
    }
    more = "".join(f", {name} {value:.4f}" for name, value in others.items() if name != entry["metric"])
    return f"{entry['metric']} {entry['value']:.4f}{error}  ({spread}{entry['num_items']:,} items){more}"
