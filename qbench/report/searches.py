"""The table of records of `qbench quantize --target --keep`: a searched mix next to the fixed recipes of its size."""

from qbench.measure.records.kept_searches import PLAIN_MIX, SearchCase, SearchedFile, SearchMetrics
from qbench.measure.records.record import Record
from qbench.report.speeds import Cells
from qbench.report.typed_rows import rows_of
from qbench.statistics.estimate import Estimate

SEARCH_NOTE = (
    "KLD is the mean over held-out text in nats, from the unquantized model [95 % interval]. "
    "Mix / recipe is the paired ratio of KLD; `*` marks the file that was written. "
    "Cost is the processor time of the whole search over that of one GPTQ run; an ablation shows no cost"
)


def search_cells(records: list[Record]) -> Cells:
    """One row per candidate of each search, the mix first; searches of one model by size."""
    heading = ["model", "target", "recipe", "bits per weight", "KLD", "predicted / measured", "mix / recipe", "cost"]
    cells = []
    searches = rows_of(records, SearchCase, SearchMetrics)
    for case, found in sorted(
        searches, key=lambda row: (row[0].model, *(one.size_bytes for one in row[1].candidates[:1]))
    ):
        for each in found.candidates:
            cost = found.cost.ratio if found.cost is not None and each.ratio is None else None
            cells.append([case.model.rpartition("/")[2], _target(case), *_file(each, found), _number(cost, 1)])
    return heading, cells, [False, False, False, *[True] * 5]


def _target(case: SearchCase) -> str:
    target = case.target if case.container is None else f"{case.target} in {case.container}"
    if case.context is None:
        return target
    sequences = f"{case.batch} x " if case.batch != 1 else ""
    return f"{target} with KV of {sequences}{case.context}"


def _file(each: SearchedFile, found: SearchMetrics) -> list[str]:
    name, mix = each.label, found.candidates[0].name
    if each.name in (mix, mix + PLAIN_MIX):
        name = "mix" + name.removeprefix(mix)
    bits = 8 * each.size_bytes / found.num_weights
    shares = each.predicted / each.kld.value if each.kld.value else None
    is_chosen = each.name == found.chosen
    return [name + " *" * is_chosen, f"{bits:.3f}", _estimate(each.kld, "{:.2e}"), _number(shares, 2), _ratio(each)]


def _ratio(each: SearchedFile) -> str:
    return "" if each.ratio is None else _estimate(each.ratio, "{:.2f}")


def _estimate(value: Estimate, form: str) -> str:
    ends = "" if value.interval is None else f" [{', '.join(form.format(end) for end in value.interval)}]"
    return form.format(value.value) + ends


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
