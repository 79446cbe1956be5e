"""Two records side by side: every metric that both have."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from qbench.comparison.kept_launches import SPEEDS, KeptLaunches, row_of
from qbench.comparison.task_cells import task_cells
from qbench.measure.metrics import Metrics
from qbench.measure.quality_figures import Blocks, ProtocolFacts, Quality
from qbench.measure.records.record import Record
from qbench.statistics.cell import Cell, Floors, judge, why_untold, with_floors
from qbench.statistics.estimate import ENOUGH_BLOCKS, Estimate
from qbench.statistics.launches import LEAST, launch_ratio, launched_ratio
from qbench.statistics.paired import kld_difference, perplexity_ratio, require_same_protocol, same_top_difference
from qbench.statistics.speed import speed_ratio

BYTES = ("size_bytes", "kv_bytes_per_token")
NO_BLOCKS = "no interval, for want of the sums by block that {} lacks (an older qbench measured it): measure it again"
FEW_BLOCKS = (
    "only {} {}s: a 95 % interval from fewer than "
    f"{ENOUGH_BLOCKS} misses the truth more often than it says; take more for a decision"
)
IN_TURN = "`qbench race A B` measures them in turn"
# The interval of samples of one process leaves out the spread between processes: of two runs of the same code that
# differ by 5 %, a third would be called different.
ONE_LAUNCH = (
    "no verdict: measured in one process each, whose samples say nothing of the next one; "
    f"`qbench sweep --launches 3` measures the spread between processes, {IN_TURN}"
)
OF_LAUNCHES = f"from the spread between launches; {IN_TURN}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Changes from A to B; `left_out` has the reason for each shared metric that is not compared."""

    a: Record
    b: Record
    cells: list[Cell]
    left_out: list[str]


@dataclass(frozen=True, slots=True)
class _Side:
    """The figures of one row under one convention. reference: the model that the divergence is from"""

    quality: Quality
    reference: str | None

    @property
    def protocol(self) -> ProtocolFacts:
        return self.quality.protocol or ProtocolFacts()

    @property
    def shown_reference(self) -> str:
        """Whose logits, and how many of them were kept: a divergence from a few is a little smaller."""
        kept = self.quality.kld_reference
        return f"{self.reference}, top {kept.k}" if kept is not None and kept.k else str(self.reference)


def compare_records(a: Record, b: Record, floors: Floors | None = None) -> Comparison:
    """Every metric of two records, paired, with p values corrected for all of them.

    floors   protocol hash -> metric -> distance of the same model from itself
    raises   InputError for different protocols; it names the difference
    """
    compared = collect(a, b)
    return Comparison(a, b, judge(with_floors(compared.cells, floors or {})), compared.left_out)


def judge_table(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Those of `collect`, with p values corrected for all cells of all of them; floors as the cells have them."""
    judged = iter(judge([cell for comparison in comparisons for cell in comparison.cells]))
    return [replace(comparison, cells=list(islice(judged, len(comparison.cells)))) for comparison in comparisons]


def collect(a: Record, b: Record, launches: KeptLaunches | None = None) -> Comparison:
    """As compare_records, not judged yet: a table's p values are corrected together.

    launches   of the records that both come from
    """
    left_out: list[str] = []
    mine, others = a.figures, b.figures
    tasks = task_cells(mine.tasks or {}, others.tasks or {}, left_out)
    cells = [*_quality(mine, others, left_out), *tasks]
    cells += [*_speed(a, b, launches or {}, left_out), *_bytes(mine, others)]
    return Comparison(a, b, cells, left_out)


def require_alike(a: ProtocolFacts, b: ProtocolFacts) -> None:
    """raises InputError for two different protocols; it names the difference"""
    require_same_protocol(a.to_json(), b.to_json())


def _quality(a: Metrics, b: Metrics, left_out: list[str]) -> Iterator[Cell]:
    """Perplexity, and the divergence from the reference, under each convention that both have."""
    of_a, of_b = _conventions(a), _conventions(b)
    common = [name for name in of_a if name in of_b]
    if of_a and of_b and not common:
        require_alike(*(next(iter(sides.values())).protocol for sides in (of_a, of_b)))
    for name in common:
        require_alike(of_a[name].protocol, of_b[name].protocol)
        convention = "" if len(common) == 1 else f" ({name})"
        yield from _perplexity(f"perplexity{convention}", of_a[name], of_b[name], left_out)
        yield from _divergence(convention, of_a[name], of_b[name], left_out)


def _conventions(metrics: Metrics) -> dict[str | None, _Side]:
    """Protocol name -> the quality that was measured under it."""
    if metrics.protocols:
        return {name: _Side(quality, metrics.reference) for name, quality in metrics.protocols.items()}
    quality = metrics.quality
    if quality is None or quality.protocol is None:
        return {}
    return {quality.protocol.name: _Side(quality, metrics.reference)}


def _perplexity(metric: str, a: _Side, b: _Side, left_out: list[str]) -> Iterator[Cell]:
    one, other = a.quality.perplexity, b.quality.perplexity
    if one is None or other is None:
        left_out.append(f"{metric}: {_side(one, other)} has none (logits that are not finite)")
        return
    paired = _paired(a, b, "nll", perplexity_ratio)
    yield _of_text(Cell(metric, one, other, "ratio", True, paired or Estimate(other / one)), a, b, "nll")


def _divergence(convention: str, a: _Side, b: _Side, left_out: list[str]) -> Iterator[Cell]:
    one, other = a.quality.mean_kld, b.quality.mean_kld
    if one is None or other is None:
        if one is not None or other is not None:
            why = "no reference, or logits that are not finite"
            left_out.append(f"kld{convention}: {_side(one, other)} has none ({why})")
        return
    references = a.shown_reference, b.shown_reference
    if references[0] != references[1]:
        left_out.append(f"kld{convention}: measured from unlike references ({' and '.join(references)})")
        return
    same = a.quality.same_top or 0.0, b.quality.same_top or 0.0  # measured whenever the KLD is
    for metric, sides, lower, paired in (
        ("kld", (one, other), True, kld_difference),
        ("same_top", same, False, same_top_difference),
    ):
        difference = _paired(a, b, "kld", paired) or Estimate(sides[1] - sides[0])
        yield _of_text(Cell(metric + convention, *sides, "difference", lower, difference), a, b, "kld")


def _paired(a: _Side, b: _Side, what: str, pair: Callable[[Blocks, Blocks], Estimate]) -> Estimate | None:
    """The estimate over the blocks; None if either side lacks these sums."""
    one, other = a.quality.blocks, b.quality.blocks
    return None if one is None or other is None or _without_blocks(a, b, what) else pair(one, other)


def _of_text(cell: Cell, a: _Side, b: _Side, what: str) -> Cell:
    """The cell with the facts of its text: the protocol, and the blocks or the reason why they do not pair."""
    note, num_blocks, blocks = _without_blocks(a, b, what), None, a.quality.blocks
    if note is None and blocks is not None:
        num_blocks = len(blocks.tokens or ())
        unit = blocks.unit or "block"
        note = why_untold(cell.estimate, num_blocks, unit)
        if note is None and num_blocks < ENOUGH_BLOCKS:
            note = FEW_BLOCKS.format(num_blocks, unit)
    return replace(cell, note=note, num_blocks=num_blocks, protocol_hash=a.protocol.hash)


def _without_blocks(a: _Side, b: _Side, what: str) -> str | None:
    found = [bool(getattr(side.quality.blocks, what, None)) for side in (a, b)]
    if all(found):
        return None
    return NO_BLOCKS.format("either side" if not any(found) else "AB"[found.index(False)])


def _side(*values: float | None) -> str:
    return "neither" if all(value is None for value in values) else "AB"[values.index(None)]


def _speed(a: Record, b: Record, kept: KeptLaunches, left_out: list[str]) -> Iterator[Cell]:
    samples = [_samples(record.figures) for record in (a, b)]
    phases = [phase for phase in SPEEDS if all(side.get(phase) for side in samples)]
    unlike = _unlike_speeds(a, b) if phases else None
    if unlike:
        left_out.append(f"speed: measured on unlike {unlike}")
        return
    for phase in phases:
        one, other = a.figures.figure(phase) or 0.0, b.figures.figure(phase) or 0.0
        ours, theirs = (kept.get(row_of(record), {}).get(phase) for record in (a, b))
        launches = [_launches(record.figures, phase) for record in (a, b)]
        if ours is not None and theirs is not None:
            means = ours.estimate.value, theirs.estimate.value
            ratio, fewest = launched_ratio(ours, theirs), min(ours.num_launches, theirs.num_launches)
            yield Cell(phase, *means, "ratio", False, ratio, note=OF_LAUNCHES, num_blocks=fewest)
        elif min(map(len, launches)) >= LEAST:
            ratio = launch_ratio(*launches)
            yield Cell(phase, one, other, "ratio", False, ratio, note=OF_LAUNCHES)
        else:
            ratio = speed_ratio(*(side[phase] for side in samples), interleaved=False)
            yield Cell(phase, one, other, "ratio", False, ratio, note=ONE_LAUNCH, is_tested=False)


def _launches(metrics: Metrics, phase: str) -> list[list[float]]:
    """Seconds of the rounds of each launch; empty if the row has no launches."""
    name = phase.removesuffix("_tok_s")
    return [launch.seconds[name][0] for launch in metrics.launches or () if launch.seconds.get(name)]


def _samples(metrics: Metrics) -> dict[str, list[float]]:
    """Phase -> its samples, if there are any."""
    figures = metrics.speed and metrics.speed.figures
    samples = figures and figures.samples
    return {} if samples is None else {"pp_tok_s": samples.of("pp"), "tg_tok_s": samples.of("tg")}


def _unlike_speeds(a: Record, b: Record) -> str | None:
    if a.machine.id != b.machine.id:
        return f"machines ({a.machine.id} and {b.machine.id})"
    if not a.machine.runs_like(b.machine):
        return f"processors ({a.machine.processor} and {b.machine.processor})"
    one, other = a.model_case, b.model_case
    for name in ("pp", "tg", "depth"):
        work = [getattr(case.speed, name, None) for case in (one, other)]
        if work[0] != work[1]:
            return f"work ({name}: {work[0]} and {work[1]})"
    return None if one.batch == other.batch else f"work (batch: {one.batch} and {other.batch})"


def _bytes(a: Metrics, b: Metrics) -> Iterator[Cell]:
    for name in BYTES:
        one, other = a.figure(name), b.figure(name)
        if one and other:
            ratio = other / one
            yield Cell(name, one, other, "ratio", True, Estimate(ratio, 0.0, ratio, ratio), exact=True)
