"""`qbench plan --goal`: the best placement of weights, keys and values within a memory limit."""

from typing import TYPE_CHECKING, Any

import click

from qbench.cli.output import print_json, print_pairs, print_warning, readable_bytes
from qbench.cli.progress import progress_bar
from qbench.measure.host.conditions import busy_share, busy_warning
from qbench.measure.host.machine import available_cores
from qbench.measure.records.kept_row import keep_row
from qbench.run.cache_spec import DYNAMIC, FULL

if TYPE_CHECKING:
    from qbench.plan.offload import OffloadCase

PARTS = ("step", "compute", "wait", "disk")
CASE_KEYS = ("model", "kv_format", "memory_bytes", "context", "batch", "goal", "threads")
GOALS = ("throughput", "latency")


def check_goal(memory: int | None, recipe: str | None, cache: tuple[Any, ...]) -> None:
    if memory is None:
        raise click.UsageError("--goal needs --memory, the limit of the process")
    if recipe is not None or cache != (DYNAMIC, FULL, None, None):
        raise click.UsageError("--goal plans for a model as stored with a dynamic, full cache")


def print_offload(model: str, case: "OffloadCase", measure: bool, keep: str | None, as_json: bool) -> None:
    from qbench.plan.offload import measured_plan, plan_offload

    busy = busy_share()
    with progress_bar(f"plan for {model}"):
        planned = plan_offload(model, case)
        if measure:
            planned = measured_plan(planned)
    result = planned.to_json()
    if keep is not None:
        keep_row(keep, flat(result, busy), {"kind": "placement"}, CASE_KEYS)
    print_warning(busy_warning(busy) if measure else None)
    print_json(result) if as_json else print_pairs(lines(result))


def flat(result: dict, busy: float | None) -> dict[str, Any]:
    """The row of a record: the case's own keys among the others, without the folder of the disk."""
    case = result["case"] | {"threads": result["case"]["threads"] or available_cores()}
    both = {key: value for key, value in (result | case).items() if key not in ("case", "disk")}
    return both | {"busy_before": busy}


def lines(result: dict) -> dict[str, str]:
    case, tiers, step = result["case"], result["tiers"], result["step"]
    over = tiers["overheads"]
    products = ", ".join(f"{name} {readable_bytes(1 / seconds)}/s" for name, seconds in tiers["product_s"].items())
    experts = {} if result["expert_share"] is None else {"experts": f"{result['expert_share']:.0%} stay in memory"}
    found = {
        "model": f"{result['model']}, {case['context']} tokens, {case['batch']} sequences, "
        f"within {readable_bytes(case['memory_bytes'])}, for {case['goal']}",
        "disk": f"{readable_bytes(tiers['disk_bytes_s'])}/s, {tiers['disk_latency_s'] * 1e6:.0f} us a small read",
        "products": f"{products} of weights, {result['together']} at once",
        "overheads": f"{over['layer_s'] * 1e3:.2f} ms per layer and {over['other_s'] * 1e3:.2f} ms per step",
        "weights": f"{result['pinned_layers']} layers stay ({readable_bytes(result['pinned_bytes'])}), "
        f"{result['streamed_layers']} are read per step, through {readable_bytes(result['ring_bytes'])}",
        **experts,
        "keys and values": f"{readable_bytes(result['kv_ram_bytes'])} in memory, "
        f"{readable_bytes(result['kv_disk_bytes'])} on the disk",
        "everything else": f"{readable_bytes(result['fixed_bytes'])}, with --prefill-chunk {result['prefill_chunk']}",
        "step": parts(step),
        "predicted": f"{result['predicted_tok_s']:.3f} tok/s",
    }
    if result["measured_tok_s"] is not None:
        found["measured step"] = parts(result["measured"])
        found["measured"] = f"{result['measured_tok_s']:.3f} tok/s  (predicted / measured {result['ratio']:.3f})"
    return found


def parts(step: dict) -> str:
    step_ms, compute_ms, wait_ms, disk_ms = (f"{step[f'{name}_s'] * 1e3:.1f} ms" for name in PARTS)
    return f"{step_ms}: computes {compute_ms}, waits {wait_ms}; reads {readable_bytes(step['disk_bytes'])} in {disk_ms}"
