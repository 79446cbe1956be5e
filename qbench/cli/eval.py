"""`qbench eval MODEL`: perplexity under named protocols, the divergence from a reference, or lm-eval's tasks."""

import click

from qbench.cli.cache_options import cache_options, kv_option, prefill_option
from qbench.cli.help import Command
from qbench.cli.memory_size import limit_option
from qbench.cli.output import compute_option, device_option, json_option, threads_option
from qbench.cli.quality import check_quality, eval_quality, quality_options, save_logits
from qbench.cli.rank_options import RANK_FIELDS, join, rank_options
from qbench.cli.run_options import with_run_options
from qbench.cli.tasks import check_tasks, eval_tasks, task_options
from qbench.options.choices import CPU, FAST
from qbench.options.run_options import RunOptions


@click.command("eval", cls=Command)
@click.argument("model", is_eager=True)
@click.option("--recipe", help="Quantize MODEL by this recipe while it loads.")
@quality_options
@task_options
@kv_option
@cache_options
@prefill_option
@compute_option
@device_option
@threads_option
@limit_option
@rank_options
@json_option
@with_run_options(
    "recipe", "kv", "cache", "policy", "compute", "device", "threads", "prefill_chunk", "attention", "prefill",
    "memory", "expert_placement", *RANK_FIELDS,
)  # fmt: skip
def command(model, quality, tasks, as_json, options: RunOptions) -> None:
    """Quality of MODEL: perplexity under named protocols, KLD and same-top share against a reference."""
    check_tasks(tasks, quality.asked)
    is_changed = options.recipe or options.kv_format or options.compute != FAST or options.device != CPU
    check_quality(quality, is_changed)
    if options.layout.num_ranks > 1 and (tasks.tasks is not None or quality.save_logits is not None):
        raise click.UsageError("--tasks and --save-logits run on one rank: leave out --tp and --pp")
    options = join(model, options)
    if tasks.tasks is not None:
        eval_tasks(model, tasks, options, as_json)
    elif quality.save_logits is not None:
        save_logits(model, quality, options, as_json)
    else:
        eval_quality(model, quality, options, as_json)
