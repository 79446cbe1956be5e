"""One table of kinds of caches in several formats: what each costs in quality, recall, speed and memory.

A sweep measures quality once and speed at every depth, so that what is told of one cache lies in several records: here
they are one row, and models stand below each other.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

from qbench.cache_kinds import DYNAMIC
from qbench.cache_policies import FULL
from qbench.markdown_grid import markdown_grid
from qbench.phrases import count
from qbench.report.extra_columns import SHARES
from qbench.report.kinds import origin

Record = dict[str, Any]
MISSING = "n/a"
# Tokens before the predicted one, where divergence is told apart: the windows of suites/caches.yaml end there.
CUTS = (1, 64, 256, None)
AXES = {"model": None, "recipe": None, "cache": DYNAMIC, "policy": FULL, "kv_format": None}  # what a row is of


def caches_markdown(records: Iterable[Record]) -> str:
    """A table for each machine and number of threads; "" where there are no records.

    records   the latest of each case of a sweep that was measured
    """
    groups: dict[tuple, list[Record]] = {}
    for record in records:
        groups.setdefault((record["machine"]["id"], record["case"]["threads"]), []).append(record)
    return "\n".join(map(one_table, groups.values()))


def one_table(records: Sequence[Record]) -> str:
    rows: dict[tuple, list[Record]] = {}
    for record in records:
        rows.setdefault(key_of(record["case"]), []).append(record)
    columns = columns_of(records)
    cells = [[of_row(found) for _, of_row in columns] for found in rows.values()]
    shown = [i for i in range(len(columns)) if any(line[i] != MISSING for line in cells)]
    grid = markdown_grid(
        [[columns[i][0] for i in shown], *([line[i] for i in shown] for line in cells)],
        [columns[i][0] not in HEADINGS for i in shown],
    )
    machine = records[0]["machine"]
    threads = f"{count(records[0]['case']['threads'], 'thread')} of {count(machine['cores'], 'core')}"
    note = "; ".join([protocols_of(records), threads, origin(list(records))])
    return f"**Caches on {machine['cpu']}**\n\n{grid}\n\n{note}.\n"


def key_of(case: dict[str, Any]) -> tuple:
    return tuple(case.get(name, default) for name, default in AXES.items())


HEADINGS = ("model", "recipe", "cache", "policy", "KV")
Column = tuple[str, Callable[[list[Record]], str]]  # its heading, and a row's text


def columns_of(records: Sequence[Record]) -> list[Column]:
    about = [(heading, axis(i)) for i, heading in enumerate(HEADINGS)]
    tasks = dict.fromkeys(name for record in records for name in record["metrics"].get("tasks") or ())
    depths = sorted({record["case"]["bench"]["depth"] for record in records if record["case"]["bench"]})
    quality = [("mean KLD [95 %]", first_of(mean_kld))]
    quality += [(f"KLD {span(*ends)}", first_of(kld_between(*ends))) for ends in pairwise(CUTS)]
    quality += [("same top %", first_of(lambda metrics: percent(metrics.get("same_top"))))]
    quality += [(f"{name} %", first_of(task_share(name))) for name in tasks]
    speeds = [column for depth in depths for column in speed_columns(records, depth)]
    return [*about, *quality, *speeds, ("peak RSS MB", peak)]


def axis(place: int) -> Callable[[list[Record]], str]:
    return lambda found: str(key_of(found[0]["case"])[place] or "as stored")


def first_of(figure: Callable[[dict[str, Any]], str | None]) -> Callable[[list[Record]], str]:
    """Of the row's records the first that has it: quality is measured in one of them."""
    return lambda found: next(filter(None, (figure(record["metrics"]) for record in found)), MISSING)


def mean_kld(metrics: dict[str, Any]) -> str | None:
    if not metrics.get("kld"):
        return None
    ends = metrics.get("kld_interval")
    return f"{metrics['kld']['mean']:.2e}" + (f" [{ends[0]:.2e}, {ends[1]:.2e}]" if ends else "")


def kld_between(low: int, high: int | None) -> Callable[[dict[str, Any]], str | None]:
    """The mean over tokens with so many before them, from the bins of powers of two that records keep."""

    def of(metrics: dict[str, Any]) -> str | None:
        bins = [
            part
            for part in metrics.get("kld_by_position") or ()
            if part["low"] >= low and (high is None or part["low"] < high)
        ]
        count = sum(part["count"] for part in bins)
        return f"{sum(part['mean'] * part['count'] for part in bins) / count:.2e}" if count else None

    return of


def span(low: int, high: int | None) -> str:
    """ "to 64", "64 to 256", "from 256" """
    if high is None:
        return f"from {low}"
    return f"to {high}" if low == CUTS[0] else f"{low} to {high}"


def percent(share: float | None) -> str | None:
    return None if share is None else f"{100 * share:.2f}"


def task_share(name: str) -> Callable[[dict[str, Any]], str | None]:
    def of(metrics: dict[str, Any]) -> str | None:
        entry = (metrics.get("tasks") or {}).get(name)
        return percent(entry["value"]) if entry and entry["metric"] in SHARES else None

    return of


def speed_columns(records: Sequence[Record], depth: int) -> list[Column]:
    """Prefill, decode and the bytes that the cache takes, of the records at this depth."""

    def at_depth(text: Callable[[dict[str, Any]], str | None]) -> Callable[[list[Record]], str]:
        one = first_of(text)
        return lambda found: one([record for record in found if (record["case"]["bench"] or {}).get("depth") == depth])

    bench = next(record["case"]["bench"] for record in records if (record["case"]["bench"] or {}).get("depth") == depth)
    at = f"@{depth}" if depth else ""
    phases = [(f"{name}{bench[name]}{at} tok/s [range]", at_depth(speed(f"{name}_tok_s"))) for name in ("pp", "tg")]
    return [*phases, (f"cache MB{at}", at_depth(cache_megabytes))]


def speed(name: str) -> Callable[[dict[str, Any]], str | None]:
    def of(metrics: dict[str, Any]) -> str | None:
        found = (metrics.get("spread") or {}).get(name)
        digits = 1 if found and metrics[name] < 100 else 0
        return found and f"{metrics[name]:.{digits}f} [{found['min']:.{digits}f}, {found['max']:.{digits}f}]"

    return of


def cache_megabytes(metrics: dict[str, Any]) -> str | None:
    return None if metrics.get("kv_bytes_held") is None else f"{metrics['kv_bytes_held'] / 1e6:.2f}"


def peak(found: list[Record]) -> str:
    """The most that any of the row's processes held."""
    sizes = [record["metrics"]["peak_rss_bytes"] for record in found if "peak_rss_bytes" in record["metrics"]]
    return f"{max(sizes) / 1e6:.0f}" if sizes else MISSING


def protocols_of(records: Sequence[Record]) -> str:
    found = (record["metrics"].get("protocol") for record in records)
    names = dict.fromkeys(f"{protocol['name']} ({protocol['hash']})" for protocol in found if protocol)
    return "protocol " + ", ".join(names) if names else "no quality"
