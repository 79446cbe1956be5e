"""Two records side by side: every metric that both have."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from qbench.statistics.cell import Cell, Floors, judge, why_untold, with_floors
from qbench.statistics.estimate import Estimate
from qbench.statistics.paired import kld_difference, perplexity_ratio, same_top_difference
from qbench.statistics.protocols import require_same_protocol
from qbench.statistics.speed import speed_ratio
from qbench.statistics.task_cells import task_cells

Record = Mapping[str, Any]

BYTES = ("size_bytes", "kv_bytes_per_token")
SPEEDS = ("pp_tok_s", "tg_tok_s")
NO_BLOCKS = "no interval, for want of the sums by block that {} lacks (an older qbench measured it): measure it again"
APART = (
    "measured in runs of their own, so that what changed on the machine between them is not in the interval; "
    "`qbench bench A B` measures them in turn"
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What changed from A to B; `left_out` says why a metric that both have is not compared."""

    a: Record
    b: Record
    cells: list[Cell]
    left_out: list[str]


def compare_records(a: Record, b: Record, floors: Floors | None = None) -> Comparison:
    """Every metric of two records, paired, with p values corrected for all of them.

    floors   protocol hash -> metric -> how far the same model lies from itself
    raises   InputError for unlike protocols, naming what differs
    """
    compared = collect(a, b)
    return Comparison(a, b, judge(with_floors(compared.cells, floors or {})), compared.left_out)


def judge_table(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Those of `collect`, with p values corrected for all cells of all of them; floors as the cells have them."""
    judged = iter(judge([cell for comparison in comparisons for cell in comparison.cells]))
    return [replace(comparison, cells=list(islice(judged, len(comparison.cells)))) for comparison in comparisons]


def collect(a: Record, b: Record) -> Comparison:
    """As compare_records, not judged yet: a table's p values are corrected together."""
    left_out: list[str] = []
    mine, others = a["metrics"] or {}, b["metrics"] or {}
    tasks = task_cells(mine.get("tasks") or {}, others.get("tasks") or {}, left_out)
    cells = [*_quality(mine, others, left_out), *tasks]
    cells += [*_speed(a, b, left_out), *_bytes(mine, others)]
    return Comparison(a, b, cells, left_out)


def _quality(a: Record, b: Record, left_out: list[str]) -> Iterator[Cell]:
    """Perplexity, and the divergence from the reference, under each convention that both have."""
    of_a, of_b = _conventions(a), _conventions(b)
    common = [name for name in of_a if name in of_b]
    if of_a and of_b and not common:
        require_same_protocol(a["protocol"], b["protocol"])
    for name in common:
        require_same_protocol(of_a[name]["protocol"], of_b[name]["protocol"])
        convention = "" if len(common) == 1 else f" ({name})"
        yield from _perplexity(f"perplexity{convention}", of_a[name], of_b[name], left_out)
        yield from _divergence(convention, of_a[name], of_b[name], left_out)


def _conventions(metrics: Record) -> dict[str, Record]:
    """Protocol name -> what was measured under it."""
    if metrics.get("protocols"):
        return dict(metrics["protocols"])
    return {metrics["protocol"]["name"]: metrics} if metrics.get("protocol") else {}


def _perplexity(metric: str, a: Record, b: Record, left_out: list[str]) -> Iterator[Cell]:
    values = a["perplexity"], b["perplexity"]
    if None in values:
        left_out.append(f"{metric}: {_side(values)} has none (logits that are not finite)")
        return
    missing = _without_blocks(a, b, "nll")
    ratio = Estimate(values[1] / values[0]) if missing else perplexity_ratio(a["blocks"], b["blocks"])
    yield Cell(metric, *values, "ratio", True, ratio, **_of_text(a, ratio, missing))


def _divergence(convention: str, a: Record, b: Record, left_out: list[str]) -> Iterator[Cell]:
    values = a.get("kld"), b.get("kld")
    if None in values:
        if values != (None, None):
            left_out.append(f"kld{convention}: {_side(values)} has none (no reference, or logits that are not finite)")
        return
    references = _reference(a), _reference(b)
    if references[0] != references[1]:
        left_out.append(f"kld{convention}: measured from unlike references ({' and '.join(references)})")
        return
    missing = _without_blocks(a, b, "kld")
    for metric, values, lower, paired in (
        ("kld", (a["kld"]["mean"], b["kld"]["mean"]), True, kld_difference),
        ("same_top", (a["same_top"], b["same_top"]), False, same_top_difference),
    ):
        difference = Estimate(values[1] - values[0]) if missing else paired(a["blocks"], b["blocks"])
        yield Cell(metric + convention, *values, "difference", lower, difference, **_of_text(a, difference, missing))


def _of_text(side: Record, estimate: Estimate, missing: str | None) -> dict[str, Any]:
    """What a cell keeps of the text that it is of."""
    num_blocks, note = None, missing
    if not missing:
        num_blocks = len(side["blocks"]["tokens"])
        note = why_untold(estimate, num_blocks, side["blocks"]["unit"])
    return {"note": note, "num_blocks": num_blocks, "protocol_hash": (side.get("protocol") or {}).get("hash")}


def _reference(quality: Record) -> str:
    """Whose logits, and how many of them were kept: a divergence from a few is a little smaller."""
    kept = quality.get("kld_reference") or {}
    return f"{quality.get('reference')}, top {kept['k']}" if kept.get("k") else str(quality.get("reference"))


def _without_blocks(a: Record, b: Record, what: str) -> str | None:
    found = [bool((side.get("blocks") or {}).get(what)) for side in (a, b)]
    if all(found):
        return None
    return NO_BLOCKS.format("either side" if not any(found) else "AB"[found.index(False)])


def _side(values: tuple) -> str:
    return "neither" if values == (None, None) else "AB"[values.index(None)]


def _speed(a: Record, b: Record, left_out: list[str]) -> Iterator[Cell]:
    samples = [(record["metrics"] or {}).get("samples") or {} for record in (a, b)]
    phases = [phase for phase in SPEEDS if all(side.get(phase) for side in samples)]
    unlike = _unlike_speeds(a, b)
    if phases and unlike:
        left_out.append(f"speed: measured on unlike {unlike}")
        return
    for phase in phases:
        ratio = speed_ratio(*(side[phase] for side in samples), interleaved=False)
        yield Cell(phase, a["metrics"][phase], b["metrics"][phase], "ratio", False, ratio, note=APART)


def _unlike_speeds(a: Record, b: Record) -> str | None:
    if a["machine"]["id"] != b["machine"]["id"]:
        return f"machines ({a['machine']['id']} and {b['machine']['id']})"
    bench = [record["case"].get("bench") or {} for record in (a, b)]
    sizes = [{"batch": record["case"].get("batch"), **work} for record, work in zip((a, b), bench, strict=True)]
    for name in ("pp", "tg", "depth", "batch"):
        if sizes[0].get(name) != sizes[1].get(name):
            return f"work ({name}: {sizes[0].get(name)} and {sizes[1].get(name)})"
    return None


def _bytes(a: Record, b: Record) -> Iterator[Cell]:
    for name in BYTES:
        if a.get(name) and b.get(name):
            ratio = b[name] / a[name]
            yield Cell(name, a[name], b[name], "ratio", True, Estimate(ratio, 0.0, ratio, ratio), exact=True)
