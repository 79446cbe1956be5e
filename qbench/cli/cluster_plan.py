"""`qbench plan MODEL --cluster FILE`: divisions of the model among the devices of a cluster, the best first."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbench.cli.output import aligned, print_json, print_warning, readable_bytes
from qbench.cli.rank_options import is_silent, join_world
from qbench.measure.host.conditions import busy_share, busy_warning
from qbench.measure.records.kept_ranks import CheckedLayout, DeviceRates, LinkRates, RankRates, RankRatesCase
from qbench.measure.records.kept_row import keep_case
from qbench.measure.records.record import read_files
from qbench.run.cache_spec import DYNAMIC, FULL
from qbench.run.options import RunOptions
from qbench.run.rank_layout import find_world
from quant.errors import InputError
from quant.present import present

if TYPE_CHECKING:
    from qbench.plan.cluster import Cluster, ClusterCase, ClusterPlan, LayoutPlan

SHOWN = 20  # layouts, and refusals, of a table
HEADINGS = ("layout", "ranks", "copies", "step ms", "messages ms", "prefill ms", "tok/s", "memory", "sent per token")


def check_cluster_goal(goal: str | None, refused: Mapping[str, object], cache: tuple[object, ...]) -> None:
    """raises UsageError for a plan without a goal, and for options that it does not take"""
    if goal is None:
        raise click.UsageError("--cluster needs --goal throughput or latency")
    given = [option for option, value in refused.items() if value is not None]
    if given:
        raise click.UsageError(f"--cluster names the memory of each device; leave out {', '.join(given)}")
    if cache != (DYNAMIC, FULL, None, None):
        raise click.UsageError("--cluster plans for a dynamic, full cache")


def print_cluster_plan(model: str, file: str, case: "ClusterCase", measure: bool, keep: str | None, as_json: bool):
    """measure: whether the ranks that torchrun started measure rates, and run layouts of as many ranks"""
    from qbench.plan.cluster import plan_cluster, read_cluster
    from qbench.plan.cluster.hosts import MEASURED

    cluster = read_cluster(Path(file))
    if measure:
        planned = measured_plan(model, cluster, case, keep)
    elif MEASURED in cluster.origins:
        raise InputError(
            f"cluster {file} has measured rates: start ranks with torchrun and give --measure, or name a file of "
            "records that --keep wrote"
        )
    else:
        planned = plan_cluster(model, case, cluster.with_rates(kept_rates))
    print_json(planned.to_json()) if as_json else click.echo("\n".join(lines(planned)))


def kept_rates(path: str) -> tuple[DeviceRates, LinkRates]:
    """The newest rates in a file of records. raises InputError for a file without any"""
    rows = [record.metrics for record in read_files([path]) if isinstance(record.metrics, RankRates)]
    if not rows or rows[-1].device is None or rows[-1].between is None:
        raise InputError(f"{path} has no rates of ranks; write some with `qbench plan --cluster --measure --keep`")
    return rows[-1].device, rows[-1].between


def measured_plan(model: str, cluster: "Cluster", case: "ClusterCase", keep: str | None) -> "ClusterPlan":
    """The plan with rates that all ranks of torchrun measure now, and with measured steps of their layouts."""
    from qbench.plan.cluster.hosts import MEASURED

    world = find_world()
    if world is None or world.size < 2:
        raise InputError("--measure needs two ranks or more; start them with torchrun --nproc-per-node 2 -m qbench ...")
    if MEASURED not in cluster.origins:
        raise InputError("--measure has nothing to measure: no device and no link of the cluster has `rates: measured`")
    options = join_world(model, RunOptions(recipe=case.recipe, kv_format=case.kv_format))
    from qbench.calibration.open_subject import open_subject
    from qbench.plan.cluster import plan_cluster
    from qbench.plan.cluster.measure import check_layouts, measure_rates
    from qbench.plan.plan import planned_context
    from qbench.runtime.parallel import joined_ranks
    from quant.models import ModelConfig

    busy, ranks = busy_share(), joined_ranks()
    print_warning(busy_warning(busy))
    source = open_subject(model, options).source
    case = replace(case, context=planned_context(ModelConfig.of(source), case.context, model))
    rates = measure_rates(ranks, source, case, present(options.threads))
    cluster = cluster.with_rates(lambda origin: rates if origin == MEASURED else kept_rates(origin))
    planned = check_layouts(ranks, source, options, plan_cluster(model, case, cluster, source))
    if keep is not None and not is_silent():
        asked = {name: getattr(case, name) for name in ("recipe", "kv_format", "context", "batch")}
        where = {"threads": options.threads, "num_ranks": world.size, "link": ranks.link.name}
        about = RankRatesCase(kind="rank-rates", model=model, **asked, **where)
        keep_case(keep, about, RankRates(device=rates[0], between=rates[1], checked=checked(planned), busy_before=busy))
    return planned


def checked(planned: "ClusterPlan") -> list[CheckedLayout]:
    return [
        CheckedLayout(
            layout=str(row.layout), predicted_s=row.decode.total_s, measured_s=row.measured_s, ratio=row.ratio
        )
        for row in planned.layouts
        if row.measured_s is not None and row.ratio is not None
    ]


def lines(planned: "ClusterPlan") -> list[str]:
    """Rates with their origins, the table, and the reasons of refusals."""
    case, cluster = planned.case, planned.cluster
    found = [
        f"{planned.model}" + (f" as {case.recipe}" if case.recipe else "") + f", {case.context} tokens, "
        f"{case.batch} sequences per copy, for {case.goal}",
        f"{len(cluster.places)} devices on {cluster.places[-1].host + 1} hosts",
    ]
    for name, device in cluster.devices.items():
        rates = present(device.rates)
        more = f", {rates.layer_s * 1e6:.0f} us per layer" if rates.layer_s else ""
        found.append(
            f"device {name} ({device.origin}): {rates.operations:.3g} operations/s, "
            f"{readable_bytes(rates.bandwidth)}/s{more}, {readable_bytes(device.memory_bytes)}"
        )
    for name, link in cluster.links.items():
        rates = present(link.rates)
        over = f" over {rates.over}" if rates.over else ""
        called = f", {rates.call_s * 1e6:.1f} us more from Python" if rates.call_s else ""
        latency = f"{rates.latency_s * 1e6:.1f} us"
        found.append(f"link {name} ({link.origin}{over}): {latency}, {readable_bytes(rates.bandwidth)}/s{called}")
    has_runs = any(row.measured_s is not None for row in planned.layouts)
    headings = [*HEADINGS, *(("measured ms", "predicted / measured") if has_runs else ())]
    found += ["", *aligned(headings, [cells(row, has_runs) for row in planned.layouts[:SHOWN]])]
    if len(planned.layouts) > SHOWN:
        found.append(f"and {len(planned.layouts) - SHOWN} slower ones (--json has all)")
    found += [
        "",
        "Steps, messages, prefill, tok/s and memory are modelled"
        + ("; measured ms is a run on these ranks" if has_runs else "; nothing here was run"),
    ]
    found += refusals(planned)
    return found


def cells(row: "LayoutPlan", has_runs: bool) -> Sequence[str]:
    times = (row.decode.total_s, row.decode.exchange_s, row.prefill.total_s)
    about = [str(row.layout), str(row.layout.num_ranks), str(row.copies), *(f"{each * 1e3:.3f}" for each in times)]
    about += [f"{row.tok_s:.2f}", readable_bytes(row.memory_bytes), readable_bytes(row.bytes_per_token)]
    if not has_runs:
        return about
    if row.measured_s is None or row.ratio is None:
        return [*about, "n/a", "n/a"]
    return [*about, f"{row.measured_s * 1e3:.3f}", f"{row.ratio:.3f}"]


def refusals(planned: "ClusterPlan") -> list[str]:
    if not planned.refused:
        return []
    more = len(planned.refused) - SHOWN
    found = ["", "refused:", *(f"  {each.layout}: {each.reason}" for each in planned.refused[:SHOWN])]
    return [*found, f"  and {more} more (--json has all)"] if more > 0 else found
