"""`qbench eval MODEL`: perplexity under named protocols, the divergence from a reference, or lm-eval's tasks."""

import click

from qbench.cli.cache_options import cache_options, kv_option, prefill_option
from qbench.cli.memory_size import limit_option
from qbench.cli.output import compute_option, device_option, json_option, threads_option
from qbench.cli.quality import check_quality, eval_quality, quality_options, save_logits
from qbench.cli.tasks import check_tasks, eval_tasks, task_options
from qbench.compute import FAST
from qbench.devices import CPU
from qbench.run_options import RunOptions


@click.command("eval")
@click.argument("model")
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
@json_option
def command(
    model,
    recipe,
    quality,
    tasks,
    kv,
    cache,
    policy,
    prefill,
    prefill_chunk,
    attention,
    compute,
    device,
    threads,
    memory,
    as_json,
) -> None:
    """Quality of MODEL: perplexity under named protocols, KLD and same-top share against a reference."""
    options = RunOptions(
        recipe, kv, cache, policy, compute, device, threads, prefill_chunk, attention, prefill, memory_bytes=memory
    )
    check_tasks(tasks, quality.asked)
    check_quality(quality, recipe or kv or compute != FAST or device != CPU)
    if tasks.tasks is not None:
        eval_tasks(model, tasks, options, as_json)
    elif quality.save_logits is not None:
        save_logits(model, quality, options, as_json)
    else:
        eval_quality(model, quality, options, as_json)
