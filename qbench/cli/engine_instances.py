"""`qbench engine --instances N`: engines on ranks of their own that lend pages of their KV caches to each other."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from qbench.cli.output import aligned, print_json
from qbench.cli.rank_options import join
from qbench.run.cache_spec import DENSE, FULL
from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankLayout
from quant.errors import InputError

if TYPE_CHECKING:
    from qbench.throughput.instances import LendingRow
    from qbench.throughput.run import ThroughputOptions
    from qbench.throughput.workload import Workload

KV_MEMORY = 1 << 30
HEADINGS = ("instance", "requests", "new tokens", "pages", "borrowed", "lent", "returned", "same text")


def check_instances(options: RunOptions, refused: Mapping[str, bool]) -> None:
    """raises InputError for options that instances do not have. refused: option -> whether it is given"""
    divided = options.layout.num_ranks > 1
    own = {f"the division {options.layout}": divided, f"--policy {options.policy}": options.policy != FULL}
    for option, is_given in {**own, f"--prefill {options.prefill}": options.prefill != DENSE, **refused}.items():
        if is_given:
            raise InputError(f"{option} does not combine with --instances yet; leave it out")


def print_lending(
    model: str,
    workload: "Workload",
    options: RunOptions,
    how: "ThroughputOptions",
    instances: int,
    kv_memory: int | None,
    as_json: bool,
) -> None:
    if instances < 2:
        raise InputError(f"--instances {instances}: one instance has nobody to lend to; give 2 or more")
    options = join(model, options, RankLayout(sp=instances))
    from qbench.runtime.parallel import joined_ranks
    from qbench.throughput.instances import measure_lending

    row = measure_lending(model, workload, options, how, kv_memory or KV_MEMORY, joined_ranks())
    print_json(row.to_json()) if as_json else click.echo("\n".join(lines(row)))


def lines(row: "LendingRow") -> list[str]:
    tokens = sum(each.new_tokens for each in row.instances)
    head = f"{row.workload} tokens on {len(row.instances)} instances: {tokens} new tokens, {row.tok_s:.1f} tok/s"
    cells = [
        [
            str(number),
            *map(str, (each.requests, each.new_tokens, each.pages, each.borrowed, each.lent, each.returned)),
            f"{each.same_text} of {each.requests}",
        ]
        for number, each in enumerate(row.instances)
    ]
    return [head, *aligned(HEADINGS, cells)]
