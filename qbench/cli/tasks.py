"""`qbench eval MODEL --tasks ...`: lm-eval's tasks, in place of perplexity."""

from collections.abc import Callable

import click

from qbench.cli.output import print_json, print_pairs
from qbench.cli.progress import progress_bar

OPTIONS = (
    click.option("--tasks", help="lm-eval's tasks in place of perplexity, e.g. blimp,ref_sums; list: those offline"),
    click.option("--limit", type=click.IntRange(min=1), help="The first items of each task  [default: all]"),
    click.option("--num-fewshot", type=click.IntRange(min=0), help="Solved examples  [default: as a task says]"),
    click.option("--include-path", multiple=True, help="Folder of more task files; may be given several times."),
)


def task_options(command: Callable) -> Callable:
    for option in reversed(OPTIONS):
        command = option(command)
    return command


def eval_tasks(model, names, limit, num_fewshot, include_path, recipe, kv, threads, as_json) -> None:
    from qbench.tasks.catalogue import offline_names
    from qbench.tasks.evaluate import evaluate_tasks
    from qbench.tasks.settings import TaskSettings

    if names == "list":
        return click.echo("\n".join(offline_names()))
    settings = TaskSettings([name.strip() for name in names.split(",")], limit, num_fewshot, include_path)
    with progress_bar(f"tasks of {model}") as update:
        result = evaluate_tasks(model, settings, recipe=recipe, kv=kv, threads=threads, progress=update)
    if as_json:
        print_json(result)
    else:
        print_pairs({"model": result["model"], "bits_per_weight": f"{result['bits_per_weight']:.4f}"})
        print_pairs({name: readable(entry) for name, entry in result["tasks"].items()})


def readable(entry: dict) -> str | None:
    """One task's figure with its error, and what it rests on."""
    if entry["value"] is None:
        return None
    error = "" if entry["error"] is None else f" ± {entry['error']:.4f}"
    return f"{entry['metric']} {entry['value']:.4f}{error}  ({entry['num_items']:,} items)"


def check_tasks(tasks, others, task_settings) -> None:
    """Tasks and perplexity are two runs, each with its own options."""
    if tasks is not None and others:
        raise click.UsageError("--tasks measures tasks alone; leave it out where perplexity and KLD are asked for")
    if tasks is None and task_settings:
        raise click.UsageError("--limit, --num-fewshot and --include-path are about --tasks; name some")
