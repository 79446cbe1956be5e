"""`qbench eval MODEL`: perplexity under named protocols, the divergence from a reference, or lm-eval's tasks."""

import click

from qbench.cli.help import Command
from qbench.cli.output import json_option
from qbench.cli.quality import check_quality, eval_quality, quality_options, save_logits
from qbench.cli.rank_options import join
from qbench.cli.run_options import run_options
from qbench.cli.tasks import check_tasks, eval_tasks, task_options
from qbench.run.axes import MACHINE, RANKS
from qbench.run.choices import CPU, FAST
from qbench.run.options import RunOptions


@click.command(
    "eval",
    cls=Command,
    sections={
        "Text": ("protocol", "text", "documents", "windows", "logits", "save_logits", "kld_reference"),
        "Tasks": ("tasks", "limit", "num_fewshot", "include_path", "metadata", "question", "answers"),
    },
    examples=(
        "qbench eval ref:llama --recipe q4_k_m --reference ref:llama",
        "qbench eval model.gguf --protocol llama.cpp-512 --text wiki.test.raw",
    ),
)
@click.argument("model", is_eager=True)
@quality_options
@task_options
@json_option
@run_options(
    "recipe", "kv_format", "cache", "policy", "prefill_chunk", "attention", "prefill", MACHINE, RANKS
)  # fmt: skip
def command(model, quality, tasks, as_json, options: RunOptions) -> None:
    """Quality of MODEL: perplexity under named protocols, KLD and same-top share against a reference."""
    check_tasks(tasks, quality.asked)
    is_changed = options.recipe or options.kv_format or options.compute != FAST or options.device != CPU
    check_quality(quality, is_changed)
    if options.layout.num_ranks > 1 and (tasks.tasks is not None or quality.save_logits is not None):
        raise click.UsageError("--tasks and --save-logits run on one rank: leave out --ranks")
    options = join(model, options)
    if tasks.tasks is not None:
        eval_tasks(model, tasks, options, as_json)
    elif quality.save_logits is not None:
        save_logits(model, quality, options, as_json)
    else:
        eval_quality(model, quality, options, as_json)
