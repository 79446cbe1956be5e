"""The options that say how an engine runs its model, of `qbench engine` and `qbench serve`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from qbench.cli.memory_size import MEMORY_SIZE
from qbench.cli.run_options import run_options
from qbench.run.axes import RANKS
from quant.errors import InputError

if TYPE_CHECKING:
    from qbench.runtime.engine import StoreOptions


def engine_options(command: Callable) -> Callable:
    """The command gets them as `options`, and the store as it is; write it below the other click options."""
    axes = run_options("recipe", "kv_format", "policy", "prefill_chunk", "prefill", "compute", "threads", RANKS)
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
