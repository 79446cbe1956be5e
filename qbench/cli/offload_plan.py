"""`qbench plan --goal`: the best placement of weights, keys and values within a memory limit."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from qbench.cache_spec import DYNAMIC, FULL
from qbench.cli.output import print_json, print_pairs, readable_bytes

if TYPE_CHECKING:
    from qbench.plan.offload import OffloadCase

GOALS = ("throughput", "latency")


def check_goal(memory: int | None, recipe: str | None, cache: tuple[Any, ...], keep: str | None) -> None:
    if memory is None:
        raise click.UsageError("--goal needs --memory, the limit of the process")
    if recipe is not None or keep is not None or cache != (DYNAMIC, FULL, None, None):
        raise click.UsageError("--goal plans for a model as stored with a dynamic, full cache, and keeps no record")


def print_offload(model: str, case: "OffloadCase", measure: bool, as_json: bool) -> None:
    from qbench.plan.offload import measured_rate, plan_offload

    planned = plan_offload(model, case)
    if measure:
        rate = measured_rate(planned)
        planned = replace(planned, measured_tok_s=rate, ratio=planned.predicted_tok_s / rate)
    result = planned.to_json()
    print_json(result) if as_json else print_pairs(lines(result))


def lines(result: dict) -> dict[str, str]:
    case, tiers, step = result["case"], result["tiers"], result["step"]
    products = ", ".join(f"{name} {readable_bytes(1 / seconds)}/s" for name, seconds in tiers["product_s"].items())
    experts = {} if result["expert_share"] is None else {"experts": f"{result['expert_share']:.0%} stay in memory"}
    found = {
        "model": f"{result['model']}, {case['context']} tokens, {case['batch']} sequences, "
        f"within {readable_bytes(case['memory_bytes'])}, for {case['goal']}",
        "disk": f"{readable_bytes(tiers['disk_bytes_s'])}/s, {tiers['disk_latency_s'] * 1e6:.0f} us a small read",
        "memory": f"{readable_bytes(tiers['ram_bytes_s'])}/s",
        "products": f"{products} of weights, {result['together']} at once",
        "weights": f"{result['pinned_layers']} layers stay ({readable_bytes(result['pinned_bytes'])}), "
        f"{result['streamed_layers']} are read per step, through {readable_bytes(result['ring_bytes'])}",
        **experts,
        "keys and values": f"{readable_bytes(result['kv_ram_bytes'])} in memory, "
        f"{readable_bytes(result['kv_disk_bytes'])} on the disk",
        "everything else": f"{readable_bytes(result['fixed_bytes'])}, with --prefill-chunk {result['prefill_chunk']}",
        "step": f"{step['step_s']:.3f} s: disk {step['disk_s']:.3f} s ({readable_bytes(step['disk_bytes'])}), "
        f"compute {step['compute_s']:.3f} s and {step['read_cpu_s']:.3f} s for the reads, "
        f"{step['overlap_s']:.3f} s of both at once",
        "predicted": f"{result['predicted_tok_s']:.3f} tok/s",
    }
    if result["measured_tok_s"] is not None:
        found["measured"] = f"{result['measured_tok_s']:.3f} tok/s  (predicted / measured {result['ratio']:.3f})"
    return found
