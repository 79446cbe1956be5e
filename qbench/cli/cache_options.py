"""Options of the KV cache, with one meaning in every command: --kv, --cache and --policy."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from qbench.cli.memory_size import MEMORY_SIZE, SIZE_OR_SHARE
from qbench.cli.types import count_option
from qbench.options.cache_spec import (
    DENSE,
    DYNAMIC,
    FULL,
    LAYOUTS,
    QUALITY_CHUNK,
    CacheSpec,
    check_layout,
    check_pattern,
    check_policy,
)
from qbench.options.choices import KERNEL, TRITON, check_attention_name
from quant.errors import InputError

if TYPE_CHECKING:
    from qbench.runtime.engine import StoreOptions

LAYOUT_HELP = f"Cache layout: {', '.join(LAYOUTS)}."
POLICY_HELP = "Cache policy, e.g. full, window:1024, sinks:4+1020, snapkv:budget=512; `qbench policies` lists them."


class Checked(click.ParamType):
    """A name that `check` knows."""

    def __init__(self, name: str, check: Callable[[str], None]) -> None:
        self.name, self.check = name, check

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            self.check(value)
        except InputError as error:
            self.fail(str(error), param, ctx)
        return value


class CheckedList(click.ParamType):
    """`"none,dynamic"` -> the names, without repeats."""

    def __init__(self, name: str, check: Callable[[str], None]) -> None:
        self.name, self.one = name, Checked(name, check)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        values = value if isinstance(value, tuple) else split_list(value)
        return tuple(dict.fromkeys(self.one.convert(one, param, ctx) for one in values))


def split_list(text: str) -> list[str]:
    """ "full,h2o:budget=64,recent=0.5,tova:64" -> the names; "recent=0.5" belongs to the name before it"""
    names: list[str] = []
    for piece in text.split(","):
        if names and "=" in piece and ":" not in piece.partition("=")[0]:
            names[-1] += f",{piece}"
        else:
            names.append(piece)
    return names


PATTERN_HELP = "Prefill pattern, e.g. dense, star:25%, flexprefill:gamma=0.9; `qbench patterns` lists them."

ATTENTION, PATTERN = Checked("attention", check_attention_name), Checked("pattern", check_pattern)
LAYOUT, POLICY = Checked("layout", check_layout), Checked("policy", check_policy)
SOME_LAYOUTS = CheckedList("layout,...", check_layout)


def kv_option(command: Callable) -> Callable:
    text = "KV format, for example kv-fp8  [default: the model's own, or f32]"
    return click.option("--kv", metavar="FORMAT", help=text)(command)


def attention_option(command: Callable) -> Callable:
    default = f"{KERNEL}, or torch if {KERNEL} cannot compute the scores; {TRITON} on a device"
    text = f"Code that computes attention: textbook, sdpa, {KERNEL}, on a device {TRITON}  [default: {default}]"
    return click.option("--attention", type=ATTENTION, help=text)(command)


def prefill_chunk_option(command: Callable) -> Callable:
    default = f"all; {QUALITY_CHUNK} for quality and tasks under a policy that evicts"
    text = f"Tokens of a prompt per forward pass, at most  [default: {default}]"
    return count_option("--prefill-chunk", help=text)(command)


def prefill_option(command: Callable) -> Callable:
    return click.option("--prefill", type=PATTERN, default=DENSE, show_default=True, help=PATTERN_HELP)(command)


def engine_cache_options(command: Callable) -> Callable:
    """--policy, --prefill-chunk and --prefill of an engine, whose layout is pages of a pool."""
    text = "Tokens of a prompt per forward pass; a policy that evicts does so after each  [default: the whole prompt]"
    chunk = count_option("--prefill-chunk", help=text)
    policy = click.option("--policy", type=POLICY, default=FULL, show_default=True, help=POLICY_HELP)
    return policy(chunk(prefill_option(command)))


def kv_store_options(command: Callable) -> Callable:
    """--kv-store and --kv-store-size of an engine."""
    text = "Folder in which computed prefixes outlive the process; several processes may share it."
    store = click.option("--kv-store", type=click.Path(path_type=Path), help=text)
    text = "Largest size of the --kv-store folder; least recently used pages go first."
    size = click.option("--kv-store-size", type=MEMORY_SIZE, default="10GiB", show_default=True, help=text)
    return store(size(command))


def kv_tier_options(command: Callable) -> Callable:
    """--kv-ram and --kv-disk of one long sequence."""
    text = (
        "Memory of the KV cache, e.g. 2GiB, or 25% of it; the rest goes to a file in the folder of temporary "
        "files  [default: all in memory]"
    )
    ram = click.option("--kv-ram", type=SIZE_OR_SHARE, help=text)
    disk = click.option("--kv-disk", type=MEMORY_SIZE, help="Largest size of the file of --kv-ram  [default: 10GiB]")
    return ram(disk(command))


def check_store(folder: Path | None, max_bytes: int, shares_prefixes: bool) -> "StoreOptions | None":
    """The store that --kv-store and --kv-store-size ask for. raises InputError if no prefix is shared"""
    from qbench.runtime.engine import StoreOptions  # imports torch

    if folder is None:
        return None
    if not shares_prefixes:
        raise InputError("--kv-store keeps prefixes, which need prefix caching, policy full and prefill dense")
    return StoreOptions(folder, max_bytes)


def cache_options(command: Callable) -> Callable:
    """--cache, --policy, --prefill-chunk and --attention, one each."""
    command = prefill_chunk_option(attention_option(command))
    policy = click.option("--policy", type=POLICY, default=FULL, show_default=True, help=POLICY_HELP)
    cache = click.option("--cache", type=LAYOUT, default=DYNAMIC, show_default=True, help=LAYOUT_HELP)
    return cache(policy(command))


def pairs_of(layouts: Sequence[str], policies: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of a layout and a policy that go together. raises InputError for a name that no list has"""
    pairs = [(layout, policy) for layout in layouts for policy in policies if _fits(layout, policy)]
    for layout in layouts:
        if not any(layout == one for one, _ in pairs):
            CacheSpec(layout, policies[0])
    for policy in policies:
        if not any(policy == one for _, one in pairs):
            CacheSpec(layouts[0], policy)
    return pairs


def _fits(layout: str, policy: str) -> bool:
    try:
        CacheSpec(layout, policy)
    except InputError:
        return False
    return True
