"""`qbench serve MODEL`: the OpenAI-compatible HTTP API."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbench.cli.engine import check_store, engine_options
from qbench.cli.help import Command
from qbench.cli.memory_size import MEMORY_SIZE
from qbench.cli.output import print_warning
from qbench.cli.progress import progress_bar
from qbench.cli.rank_options import check_engine_ranks, follows, join
from qbench.cli.types import FiniteRange, count_option
from qbench.run.cache_spec import DENSE, FULL
from qbench.run.options import RunOptions
from qbench.words.written import read_text_file
from quant.errors import InputError

if TYPE_CHECKING:
    from qbench.measure.subject import Subject


@click.command(
    "serve",
    cls=Command,
    sections={
        "Requests": ("max_batch", "max_queue", "no_prefix_caching", "preempt", "swap_memory", "swap_disk"),
        "Access": ("host", "port", "api_key", "allowed_host", "allowed_origin", "request_timeout"),
        "KV cache": ("kv_memory", "kv", "policy", "prefill_chunk", "prefill", "kv_store", "kv_store_size"),
    },
    examples=("qbench serve model.gguf", "qbench serve model.gguf --port 8080 --kv kv-fp8 --max-batch 8"),
)
@click.argument("model")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; 0.0.0.0 means every address of the machine.",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 means any free one."
)
@click.option(
    "--kv-memory",
    type=MEMORY_SIZE,
    default="1GiB",
    show_default=True,
    help="Memory of the KV cache; weights and Python come on top.",
)
@count_option("--max-batch", default=32, help="Largest number of running requests.")
@count_option("--max-queue", default=1024, help="Largest number of waiting requests.")
@click.option("--no-prefix-caching", is_flag=True, help="Compute every prompt completely, without shared prefixes.")
@click.option("--preempt", type=click.Choice(["recompute", "swap"]), default="recompute", show_default=True,
              help="Way in which a preempted request gets its KV cache back.")  # fmt: skip
@click.option(
    "--swap-memory",
    type=MEMORY_SIZE,
    default="1GiB",
    show_default=True,
    help="Memory for preempted requests, with --preempt swap.",
)
@click.option("--swap-disk", type=MEMORY_SIZE, help="Disk for pages that --swap-memory cannot hold  [default: no disk]")
@click.option(
    "--api-key",
    envvar="QBENCH_API_KEY",
    help="Key that clients must send; needed unless --host is this machine's own loopback  [env QBENCH_API_KEY]",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    help="Name of this server in the Host header, besides localhost; * allows all; may be given several times.",
)
@click.option(
    "--allowed-origin",
    "allowed_origins",
    multiple=True,
    help="Origin of pages that may use this server from a browser, such as http://localhost:3000; * allows all; may be "
    "given several times.",
)
@click.option(
    "--chat-template",
    type=click.Path(path_type=Path),
    help="File of a Jinja template for conversations, instead of the model's own.",
)
@click.option(
    "--request-timeout",
    "request_s",
    type=FiniteRange(min=0.001),
    default=600,
    show_default=True,
    help="Time limit of a request in seconds.",
)
@engine_options
def command(
    model,
    host,
    port,
    kv_memory,
    no_prefix_caching,
    swap_memory,
    swap_disk,
    api_key,
    allowed_hosts,
    allowed_origins,
    request_s,
    chat_template,
    kv_store,
    kv_store_size,
    options: RunOptions,
    **limits,
) -> None:
    """Completions and chat at /v1, streamed or whole, until Ctrl-C; Prometheus reads /metrics."""
    from qbench.calibration.open_subject import open_subject
    from qbench.runtime.engine import EngineOptions
    from qbench.runtime.engine.options import SWAP

    try:
        from qbench.serve.cors import checked_origin
        from qbench.serve.door import check_api_key, is_loopback
        from qbench.serve.server import listen, open_served, run
    except ModuleNotFoundError as error:
        raise InputError(f"serve needs {error.name}: pip install 'qbench-llm[serve]'") from None
    check_api_key(api_key)
    if not is_loopback(host) and api_key is None:
        raise InputError(f"--host {host} lets other machines in, so clients need a key; give one with --api-key")
    for origin in allowed_origins:
        checked_origin(origin)
    template = None if chat_template is None else read_text_file(chat_template, "chat template")
    caching = not no_prefix_caching
    store = check_store(kv_store, kv_store_size, caching and (options.policy, options.prefill) == (FULL, DENSE))
    engine = EngineOptions(
        memory_bytes=kv_memory, prefix_caching=caching, swap_bytes=swap_memory, swap_disk_bytes=swap_disk or 0, **limits
    )
    check_engine_ranks(options, {"--kv-store": store is not None, "--preempt swap": engine.preempt == SWAP})
    options = join(model, options)
    if follows(model, options):
        return
    with listen(host, port) as listening:
        subject = open_subject(model, options)
        with progress_bar(f"load {model}"):
            served = open_served(subject, engine, store, template)
        for what, why in unshared(subject).items() if caching else ():
            print_warning(f"{what}: equal beginnings of prompts share no pages; {why}")
        try:
            run(
                served,
                listening,
                lambda url: click.echo(f"{served.name} at {url}/v1 (Ctrl-C ends)", err=True),
                api_key=api_key,
                allowed_hosts=(host, *allowed_hosts),
                allowed_origins=allowed_origins,
                request_s=request_s,
            )
        except KeyboardInterrupt:
            click.echo("ended", err=True)


def unshared(subject: "Subject") -> dict[str, str]:
    """Choices with which equal beginnings of prompts share no pages, and the reason for each."""
    from qbench.measure.subject import kv_name
    from quant.kv import KV_FORMATS

    options, kv_format, found = subject.options, kv_name(subject.source), {}
    if options.prefill != DENSE:
        found[f"prefill {options.prefill}"] = "each depends on its own length"
    if options.policy != FULL:
        found[f"policy {options.policy}"] = "each evicts by its own queries"
    if kv_format in KV_FORMATS and KV_FORMATS[kv_format].token_group > 1:
        found[f"KV format {kv_format}"] = "each has its most recent tokens as floats"
    return found
