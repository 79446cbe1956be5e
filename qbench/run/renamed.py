"""Keys and axes of suites of earlier versions: one line says their new names."""

from collections.abc import Collection, Mapping
from typing import Any

from qbench.run.cache_spec import LAYOUTS
from quant.errors import InputError
from quant.kv_names import FLOAT32

LAYOUT_OR_POLICY = f"a layout ({', '.join(LAYOUTS)}) or a policy (full, window:N, sinks:S+N)"
KEYS = {
    "cache_kinds": f"'caches' and 'policies' now: {LAYOUT_OR_POLICY}",
    "products": "'compute' now: fast (once auto), exact, float32",
}
SECTION_KEYS = {"calibration": {"length": "'seq_len' now"}}
AXES = {
    "cache_kind": f"'cache' or 'policy' now: {LAYOUT_OR_POLICY}",
    "products": "'compute' now: fast (once auto), exact, float32",
}


def check_key(key: Any, where: str, keys: Mapping[str, str] = KEYS) -> None:
    """raises InputError for a key of an earlier version"""
    if key in keys:
        raise InputError(f"{where}: key {key!r} is called {keys[key]}")


def check_section(section: str, keys: Any, where: str) -> None:
    """The same for the keys of a section."""
    for key in keys if isinstance(keys, Mapping) else ():
        check_key(key, f"{where}: {section}", SECTION_KEYS.get(section, {}))


def check_axis(axis: Any, value: Any, where: str) -> None:
    """raises InputError for an axis of schema 1 in a rule"""
    if axis in AXES:
        raise InputError(f"{where}: axis {axis!r} is called {AXES[axis]}")
    for one in value if isinstance(value, list) else [value]:
        if axis == "cache" and is_kv_format(one):
            raise InputError(f"{where}: cache is {one!r}, a KV format; the axis is called 'kv_format' now")


def check_caches(caches: Collection[str], where: str) -> None:
    """raises InputError for KV formats in `caches`, as schema 1 had them"""
    for name in caches:
        if is_kv_format(name):
            raise InputError(f"{where}: caches has the KV format {name!r}; the key is called 'kv_formats' now")


def is_kv_format(name: Any) -> bool:
    return isinstance(name, str) and (name.startswith("kv-") or name in (FLOAT32, "dense-f32"))
