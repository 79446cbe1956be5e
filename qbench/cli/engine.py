"""`qbench engine MODEL`: throughput of many requests at once, compared with other ways to run them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbench.cli.help import Command
from qbench.cli.keep_path import KeepPath
from qbench.cli.memory_size import MEMORY_SIZE
from qbench.cli.output import (
    aligned,
    cpu_time_option,
    json_option,
    print_json,
    print_warning,
)
from qbench.cli.progress import progress_bar
from qbench.cli.rank_options import check_engine_ranks, follows, join
from qbench.cli.run_options import run_options
from qbench.cli.types import IntList, count_option
from qbench.measure.host.conditions import busy_warning
from qbench.measure.records.kept_row import keep_row
from qbench.run.axes import RANKS
from qbench.run.cache_spec import DENSE, FULL
from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankLayout
from qbench.throughput.workload import Workload, fitting_lengths
from quant.errors import InputError

if TYPE_CHECKING:
    from qbench.runtime.engine import StoreOptions
    from qbench.throughput.instances import LendingRow
    from qbench.throughput.run import ThroughputOptions

KV_MEMORY = 1 << 30  # of each instance, in bytes
HEADINGS = ("instance", "requests", "new tokens", "pages", "borrowed", "lent", "returned", "same text")


def engine_options(command: Callable) -> Callable:
    """The command gets them as `options`, and the store as it is; write it below the other click options."""
    chunk = "Tokens of a prompt per forward pass; a policy that evicts does so after each  [default: the whole prompt]"
    own = ("recipe", "kv_format", "policy", "prefill_chunk", "prefill", "compute", "threads", RANKS)
    axes = run_options(*own, helps={"prefill_chunk": chunk})
    return kv_store_options(axes(command))


def kv_store_options(command: Callable) -> Callable:
    """--kv-store and --kv-store-size of an engine."""
    text = "Folder in which computed prefixes outlive the process; several processes may share it."
    store = click.option("--kv-store", type=click.Path(path_type=Path), help=text)
    text = "Largest size of the --kv-store folder; least recently used pages go first."
    size = click.option("--kv-store-size", type=MEMORY_SIZE, default="10GiB", show_default=True, help=text)
    return store(size(command))


def check_store(folder: Path | None, max_bytes: int, shares_prefixes: bool) -> "StoreOptions | None":
    """The store that --kv-store and --kv-store-size ask for. raises InputError if no prefix is shared"""
    from qbench.runtime.engine import StoreOptions  # imports torch

    if folder is None:
        return None
    if not shares_prefixes:
        raise InputError("--kv-store keeps prefixes, which need prefix caching, policy full and prefill dense")
    return StoreOptions(folder, max_bytes)


@click.command(
    "engine",
    cls=Command,
    sections={
        "Requests": ("requests", "prompt", "new", "document", "batch", "chunk"),
        "Measurement": ("rounds", "seed", "vs", "instances"),
        "KV cache": ("kv_memory", "kv", "policy", "prefill_chunk", "prefill", "kv_store", "kv_store_size"),
    },
    examples=("qbench engine ref:llama --requests 16", "qbench engine ref:llama --requests 16 --document 128"),
)
@click.argument("model")
@count_option("--requests", default=64, help="Number of requests; all of them wait at the start.")
@click.option(
    "--prompt", type=IntList(1), help="Smallest and largest number of prompt tokens  [default: 32,256, or fewer]"
)
@click.option("--new", type=IntList(1), help="Smallest and largest number of new tokens  [default: 8,512, or fewer]")
@count_option("--document", least=0, default=0, help="Number of tokens at the start that all prompts share.")
@count_option("--batch", default=16, help="Number of sequences at once.")
@count_option("--chunk", least=2, default=256, help="Number of prompt tokens per step.")
@count_option("--rounds", default=3, help="Number of rounds; every contender runs once per round.")
@count_option("--seed", least=0, default=0)
@click.option(
    "--vs", type=click.Choice(["llama.cpp"]), help="Also run the same GGUF file through this program, with kv-f16."
)
@count_option("--instances", help="Number of engines, each on a rank of its own; they lend pages to each other.")
@click.option("--kv-memory", type=MEMORY_SIZE, help="With --instances: memory of the KV cache of each  [default: 1GiB]")
@cpu_time_option
@click.option("--keep", type=KeepPath(), help="Append the row as a record to this file or folder.")
@json_option
@engine_options
def command(
    model,
    requests,
    prompt,
    new,
    document,
    seed,
    cpu_time,
    keep,
    kv_store,
    kv_store_size,
    as_json,
    options: RunOptions,
    **how,
) -> None:
    """Throughput of the serving engine on requests of mixed lengths, next to static batches of the same size.

    By default a request is no longer than the model's context. With --document, also next to an engine that computes
    the document again for each request. Contenders take turns.
    """
    from qbench.runtime.engine import most_tokens
    from qbench.sources import open_source
    from qbench.throughput.run import CASE_KEYS, ThroughputOptions, measure_throughput
    from quant.models import ModelConfig

    if any(lengths is not None and len(lengths) != 2 for lengths in (prompt, new)):
        raise click.UsageError("--prompt and --new take two numbers, as in 32,256")
    if prompt is None or new is None:
        prompt, new = fitting_lengths(most_tokens(ModelConfig.of(open_source(model))), document, prompt, new)
    workload = Workload(requests, prompt, new, document, seed)
    store = check_store(kv_store, kv_store_size, (options.policy, options.prefill) == (FULL, DENSE))
    check_engine_ranks(options, {"--kv-store": store is not None, "--vs llama.cpp": how["vs"] is not None})
    instances, kv_memory = how.pop("instances"), how.pop("kv_memory")
    if instances is not None:
        refused = {"--kv-store": store is not None, "--vs": how["vs"] is not None, "--keep": keep is not None}
        check_instances(options, refused | {"--cpu-time": cpu_time, "--document": document > 0})
        return print_lending(model, workload, options, ThroughputOptions(**how), instances, kv_memory, as_json)
    if kv_memory is not None:
        raise click.UsageError("--kv-memory is for --instances; the engine alone has room for its whole batch")
    options = join(model, options)
    if follows(model, options):
        return
    given = ThroughputOptions(**how, clock="cpu" if cpu_time else "wall", store=store)
    with progress_bar(f"engine {model}") as update:
        row = measure_throughput(model, workload, options, given, progress=update).to_json()
    print_warning(busy_warning(row["busy_before"]))
    if keep is not None:
        keep_row(keep, row, {"kind": "throughput"}, CASE_KEYS)
    print_json(row) if as_json else click.echo("\n".join(lines(row)))


def lines(row: dict) -> list[str]:
    """The requests, then one line per contender; ratios are how many times as fast the engine is."""
    head = f"{row['workload']} tokens, {row['batch']} at once: {row['new_tokens']} new tokens"
    headings = ("", "new tok/s", "computed", "first token", "engine is", "same text")
    table = aligned(headings, [cells(name, figures) for name, figures in row["contenders"].items()])
    return [head, *table, *store_lines(row.get("kv_store"))]


def store_lines(store: dict | None) -> list[str]:
    """Statistics of the KV store."""
    if store is None:
        return []
    numbers = {name: value for name, value in store.items() if isinstance(value, int)}
    seconds = {name: value for name, value in store.items() if isinstance(value, float)}
    words = [f"{name.replace('_', ' ')} {value}" for name, value in numbers.items()]
    words += [f"{name.removesuffix('_s')} {value:.3f} s" for name, value in seconds.items()]
    return ["KV store, all rounds: " + ", ".join(words)]


def cells(name: str, figures: dict) -> list[str]:
    first = f"{figures['ttft_ms'] / 1e3:.2f} s"
    ratio = f"{figures['ratio']['median']:.2f}x"
    same = f"{100 * figures['same_text']:.0f} %"
    return [name, f"{figures['tok_s']:.1f}", str(figures["computed"]), first, ratio, same]


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
    print_json(row.to_json()) if as_json else click.echo("\n".join(lending_lines(row)))


def lending_lines(row: "LendingRow") -> list[str]:
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
