"""The options that say how an engine runs its model, of `qbench engine` and `qbench serve`."""

from collections.abc import Callable

from qbench.cli.cache_options import engine_cache_options, kv_option, kv_store_options
from qbench.cli.output import compute_option, threads_option
from qbench.cli.rank_options import RANK_FIELDS, rank_options
from qbench.cli.run_options import with_run_options

FIELDS = ("recipe", "kv", "policy", "prefill_chunk", "prefill", "compute", "threads", *RANK_FIELDS)
OPTIONS = (kv_option, engine_cache_options, kv_store_options, compute_option, threads_option, rank_options)


def engine_options(command: Callable) -> Callable:
    """The command gets them as `options`, and the store as it is; write it below the other click options."""
    command = with_run_options(*FIELDS)(command)
    for option in reversed(OPTIONS):
        command = option(command)
    return command
