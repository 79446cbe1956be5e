"""`qbench plan MODEL --recipe R --context N --memory 24GiB`: memory by part, before anything is made."""

from dataclasses import replace

import click

from qbench.cli.cluster_plan import check_cluster_goal, print_cluster_plan
from qbench.cli.help import Command
from qbench.cli.keep_path import KeepPath
from qbench.cli.memory_size import MEMORY_SIZE
from qbench.cli.offload_plan import GOALS, check_goal, print_offload
from qbench.cli.output import aligned, json_option, print_json, print_pairs, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.cli.run_options import axis_option
from qbench.cli.types import count_option
from qbench.measure.records.kept_row import keep_row
from qbench.run.cache_spec import DYNAMIC, FULL
from quant.errors import InputError


@click.command(
    "plan",
    cls=Command,
    sections={"Case": ("context", "batch", "goal", "cluster", "disk", "measure")},
    examples=(
        "qbench plan shape:llama-3.1-8b --recipe q4_k_m --context 8192",
        "qbench plan ref:llama --kv kv-int8 --context 512 --json",
    ),
)
@click.argument("model")
@click.option("--recipe", help="Plan for the model quantized by this recipe  [default: as stored]")
@axis_option("kv_format")
@count_option("--context", "--ctx", help="Number of tokens per sequence  [default: the model's own, at most 8192]")
@count_option("--batch", default=1, help="Number of sequences at once.")
@axis_option("cache")
@axis_option("policy")
@axis_option("prefill_chunk")
@axis_option("attention")
@click.option(
    "--memory",
    type=MEMORY_SIZE,
    help="Print the largest contexts and batches that fit into this much memory, for example 24GiB.",
)
@click.option(
    "--goal",
    type=click.Choice(GOALS),
    help="Place weights, keys and values within --memory, or divide the model among --cluster, for this goal.",
)
@click.option("--cluster", type=click.Path(), help="YAML file of hosts, devices and links to divide the model among.")
@click.option(
    "--disk",
    type=click.Path(exists=True, file_okay=False),
    help="Folder on the disk that --goal measures  [default: the folder of the streamed weights]",
)
@click.option(
    "--measure",
    is_flag=True,
    help="Also run the model, and compare it with the plan. For --cluster: on the ranks that torchrun started.",
)
@click.option("--keep", type=KeepPath(), help="Append the plan as a record to this file or folder.")
@json_option
def command(
    model, recipe, kv, context, batch, cache, policy, prefill_chunk, attention, memory, measure, keep, as_json, **placed
) -> None:
    """Weights, KV cache and workspace of MODEL, from its config alone; shape:NAME needs no weights at all."""
    from qbench.plan import CASE_KEYS, PlanCase, compared, measured, plan

    goal, disk, cluster = (placed[name] for name in ("goal", "disk", "cluster"))
    if cluster is not None:
        from qbench.plan.cluster import ClusterCase

        check_cluster_goal(goal, {"--memory": memory, "--disk": disk}, (cache, policy, prefill_chunk, attention))
        print_cluster_plan(model, cluster, ClusterCase(goal, recipe, kv, context, batch), measure, keep, as_json)
        return
    if goal is not None:
        from qbench.plan.offload import OffloadCase  # which loads a solver

        check_goal(memory, recipe, (cache, policy, prefill_chunk, attention))
        print_offload(model, OffloadCase(memory, context, batch, goal, disk, kv), measure, keep, as_json)
        return
    if disk is not None:
        raise click.UsageError("--disk goes with --goal")
    if measure and (recipe or (cache, policy) != (DYNAMIC, FULL)):
        raise click.UsageError(
            "--measure runs a model as it is stored, with a dynamic cache of policy full: quantize it, plan the file"
        )
    planned = plan(model, PlanCase(recipe, kv, context, batch, prefill_chunk, memory, cache, policy, attention))
    if measure:
        with progress_bar(f"measure {model}"):
            found = measured(model, planned.context, batch, prefill=prefill_chunk, kv_format=kv, attention=attention)
        planned = replace(planned, measured=compared(planned.parts.total_bytes, found))
    result = planned.to_json()
    if keep is not None:
        keep_row(keep, result, {"kind": "plan"}, CASE_KEYS)
    print_json(result) if as_json else print_plan(result)
    if recipe is not None:
        warn_of_refusal(model, recipe)


def warn_of_refusal(model: str, recipe: str) -> None:
    """Says why `quantize` would refuse to write the model by the recipe, for example for its tokenizer."""
    from qbench.sources import open_source
    from quant.artifacts import make_artifact_job
    from quant.recipes import get_recipe

    try:
        make_artifact_job(open_source(model), get_recipe(recipe), None)
    except InputError as error:
        click.echo(f"warning: quantize would refuse this recipe: {error}", err=True)


def print_plan(result: dict) -> None:
    stored = readable_bytes(result["weights_bytes"])
    print_pairs(
        {
            "model": " as ".join(filter(None, (result["model"], result["recipe"]))),
            "weights": f"{readable_bytes(result['resident_bytes'])}  ({stored} stored, "
            f"{result['bits_per_weight']:.3f} bits per weight)",
            "KV cache": kv_line(result),
            "workspace": f"{readable_bytes(result['workspace_bytes'])}  "
            f"({result['forward_tokens']} tokens per forward pass)",
            "total": readable_bytes(result["total_bytes"]),
            "a token in 16 bits": forms_line(result),
            **window_line(result),
            **measured_lines(result),
        }
    )
    if "fits" in result:
        print_fitting(result)


def kv_line(result: dict) -> str:
    """Bytes of the cache, and the tokens that it holds: under a policy that evicts, a share of them."""
    tokens, each = result["batch"] * result["context"], result["kv_bytes_per_token"]
    share = result["kv_bytes"] / (tokens * each) if each else 1.0
    held = f"{100 * share:.3g}% of " if round(share, 3) < 1 else ""
    return (
        f"{readable_bytes(result['kv_bytes'])}  ({held}{result['batch']} x {result['context']} tokens, "
        f"{readable_bytes(each)} each in {result['kv_format'] or 'float32'}, cache {result['cache']}, "
        f"policy {result['policy']})"
    )


def forms_line(result: dict) -> str:
    """Each form of attention, the model's own marked."""
    own = result["attention"]
    forms = result["kv_forms_bytes_per_token"].items()
    return ", ".join(f"{form}{'*' if form == own else ''} {readable_bytes(size)}" for form, size in forms)


def window_line(result: dict) -> dict[str, str]:
    share = result["windowed_kv_share"]
    return {"windows": f"see {share:.0%} of this KV cache"} if share < 1 else {}


def measured_lines(result: dict) -> dict[str, str]:
    if "peak_rss_bytes" not in result:
        return {}
    runtime = readable_bytes(result["runtime_bytes"])
    return {
        "with its runtime": f"{readable_bytes(result['predicted_peak_bytes'])}  ({runtime} of Python, torch, kernels)",
        "measured peak": f"{readable_bytes(result['peak_rss_bytes'])}  (predicted / measured {result['ratio']:.3f})",
    }


def print_fitting(result: dict) -> None:
    memory = readable_bytes(result["memory_bytes"])
    over = result["total_bytes"] - result["memory_bytes"]
    click.echo(f"\nof {memory}: {'fits' if result['fits'] else f'{readable_bytes(over)} too much'}")
    if result["kv_tokens"] is not None:
        click.echo(f"next to the weights: {result['kv_tokens']:,} tokens of KV cache")
    click.echo(f"at {result['context']} tokens each at most {result['largest_batch']:,} sequences")
    rows = [
        (*(f"{row[name]:,}" for name in ("batch", "context", "tokens")), readable_bytes(row["total_bytes"]))
        for row in result["largest_contexts"]
    ]
    if rows:
        click.echo("\n".join(["", *aligned(("batch", "context", "tokens", "total"), rows)]))
