"""Records of older schemas in today's words. A case keeps the key that it had in the words of schema 2."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from qbench.run.cache_spec import DYNAMIC, FULL, check_layout, check_policy
from qbench.statistics.estimate import says_enough

Document = dict[str, Any]

SCHEMA_VERSION = 4
AUTO_AND_FAST = {"auto": "fast"}
DENSE = {"dense-f32": "f32"}


@dataclass(frozen=True, slots=True)
class Word:
    """A key of schema 2 and the key that it has today. values: old value -> new value"""

    old: str
    new: str
    values: Mapping[str, str] = field(default_factory=dict)


KV, COMPUTE = Word("kv", "kv_format"), Word("products", "compute", AUTO_AND_FAST)
# The kind of a case (None: of a sweep) -> the words of the case.
CASE_WORDS: dict[str | None, tuple[Word, ...]] = {
    None: (Word("cache", "kv_format", DENSE), COMPUTE),
    "again": (Word("cache", "kv_format", DENSE), COMPUTE),
    "plan": (KV, Word("pass_tokens", "forward_tokens")),
    "mla": (KV, Word("plan", "mode")),
    "throughput": (KV, COMPUTE),
    "versus": (KV,),
}
# The same of a case's key for the kind of cache, which is a layout and a policy today.
CACHE_KINDS = {None: "cache_kind", "again": "cache_kind", "plan": "cache"}
METRIC_WORDS = (
    KV,
    COMPUTE,
    Word("ceilings", "machine_peaks"),
    Word("ceilings_seconds", "machine_peaks_seconds"),
    Word("cache_bytes", "kv_bytes_held"),
    Word("cache_bytes_per_token", "kv_bytes_per_token"),
)


def add_blocks_and_tasks(record: Document) -> Document:
    """Schema 2 only adds: sums by block, several protocols, tasks and energy."""
    return record


def use_common_words(record: Document) -> Document:
    """Schema 3 has one word per concept."""
    case, metrics = record["case"], record["metrics"]
    kind = case.get("kind")
    new = record | {"case": _renamed(case, CASE_WORDS.get(kind, ()), CACHE_KINDS.get(kind))}
    return new | {"metrics": metrics and _metrics_of(metrics)}


def keep_intervals_that_say_enough(record: Document) -> Document:
    """Schema 4 has no interval of a few uneven blocks."""
    metrics = record["metrics"]
    if not isinstance(metrics, dict):
        return record
    new = _with_intervals(metrics)
    if isinstance(new.get("protocols"), dict):
        new["protocols"] = {name: _with_intervals(entry) for name, entry in new["protocols"].items()}
    return record | {"metrics": new}


def _with_intervals(entry: Any) -> Any:
    """Figures of a model's quality without those of their intervals that do not say enough."""
    if not isinstance(entry, dict):
        return entry
    new = dict(entry)
    blocks = entry.get("blocks")
    tokens = blocks.get("tokens") if isinstance(blocks, dict) else None
    # Rows of the first schema have no sums by block.
    num_blocks = len(tokens) if isinstance(tokens, list) else entry.get("num_windows")
    for name, bound in (("perplexity_interval", None), ("kld_interval", 0.0)):
        ends = entry.get(name)
        if not (isinstance(ends, list) and len(ends) == 2 and all(isinstance(end, int | float) for end in ends)):
            continue
        if isinstance(num_blocks, int) and not says_enough(ends, num_blocks, bound):
            new[name] = None
    return new


def _metrics_of(metrics: Document) -> Document:
    new = _renamed(metrics, METRIC_WORDS, "cache_kind")
    for name in ("protocols", "tasks"):
        if isinstance(new.get(name), dict):
            new[name] = {key: _with_protocol(entry) for key, entry in new[name].items()}
    if isinstance(new.get("llama.cpp"), dict):
        new["llama.cpp"] = _renamed(new["llama.cpp"], (KV,))
    return _with_protocol(new)


def _with_protocol(entry: Any) -> Any:
    if not isinstance(entry, dict) or not isinstance(entry.get("protocol"), dict):
        return entry
    return entry | {"protocol": _renamed(entry["protocol"], (COMPUTE,))}


def _renamed(document: Document, words: tuple[Word, ...], cache_kind: str | None = None) -> Document:
    """The document in today's words, keys in their order. cache_kind: the key that becomes `cache` and `policy`"""
    of_old = {word.old: word for word in words}
    new: Document = {}
    for key, value in document.items():
        if key == cache_kind and isinstance(value, str):
            layout, policy = _layout_and_policy(value)
            new |= {"cache": layout} if policy == FULL or key == "cache" else {}
            new |= {"policy": policy} if policy != FULL or key == "cache" else {}
        elif key in of_old:
            new[of_old[key].new] = _value(value, of_old[key].values)
        else:
            new[key] = value
    return new


def _layout_and_policy(kind: str) -> tuple[str, str]:
    """A kind of cache in the words of schema 2: a layout, "window", "window:256" or, with 4 sinks, "window:256+4"."""
    name, _, counts = kind.partition(":")
    window, plus, sinks = counts.partition("+")
    layout, policy = (kind, FULL) if name != "window" else (DYNAMIC, f"sinks:{sinks}+{window}" if plus else kind)
    check_layout(layout)
    check_policy(policy)
    return layout, policy


def _cache_kind(layout: str, policy: str) -> str:
    """The other way round. Policies that schema 2 did not have are kinds of their own."""
    name, _, counts = policy.partition(":")
    if name == "sinks":
        sinks, _, window = counts.partition("+")
        return f"window:{window}+{sinks}"
    return layout if policy == FULL else policy


def _value(value: Any, values: Mapping[str, str]) -> Any:
    return values.get(value, value) if isinstance(value, str) else value


def identity_of(case: Mapping[str, Any]) -> Document:
    """The case's document in the words of schema 2, of which its key is the hash: keys outlive the words."""
    kind = case.get("kind")
    of_new, cache_kind = {word.new: word for word in CASE_WORDS.get(kind, ())}, CACHE_KINDS.get(kind)
    old: Document = {}
    for key, value in case.items():
        if key in ("cache", "policy") and cache_kind is not None:
            old[cache_kind] = _cache_kind(case.get("cache", DYNAMIC), case.get("policy", FULL))
        elif key in of_new:
            old[of_new[key].old] = _value(value, {new: before for before, new in of_new[key].values.items()})
        else:
            old[key] = value
    return old


def protocol_identity(protocol: Mapping[str, Any]) -> Document:
    """The same of a protocol."""
    return {COMPUTE.old if key == COMPUTE.new else key: value for key, value in protocol.items()}


# schema -> function that turns its records into those of the next
MIGRATIONS: dict[int, Callable[[Document], Document]] = {
    1: add_blocks_and_tasks,
    2: use_common_words,
    3: keep_intervals_that_say_enough,
}


def migrate(record: Document) -> Document:
    """The record in today's schema. raises KeyError for a schema that never was"""
    while record["schema_version"] < SCHEMA_VERSION:
        version = record["schema_version"]
        record = MIGRATIONS[version](record) | {"schema_version": version + 1}
    return record
