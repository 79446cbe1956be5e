"""Cells of the tables of `qbench plan --goal`, of several ranks in `qbench compare`, and of `qbench search`."""

import re

from qbench.measure.records.kept_placements import PlacementCase, PlacementMetrics
from qbench.measure.records.kept_ranks import RanksCase, RanksMetrics, setup_name
from qbench.measure.records.kept_searches import PLAIN_MIX, SearchCase, SearchedFile, SearchMetrics
from qbench.measure.records.record import Record
from qbench.measure.speed_figures import StepTime
from qbench.report.recorded import rows_of
from qbench.report.speeds import Cells
from qbench.run.rank_layout import RankLayout
from qbench.statistics.estimate import Estimate

MISSING = "n/a"
MEBI = 1 << 20
PLACED_NOTE = (
    "Each pair is predicted / measured; the last column is predicted over measured tokens per second. "
    "Computation includes the processor time of reads, and waits are for weights from the disk"
)
PARTS = ("step_s", "compute_s", "wait_s", "disk_s")


def placed_cells(records: list[Record]) -> Cells:
    """One row per plan."""
    heading = ["model", "KV", "limit MiB", "batch", "context", "goal", "read MB"]
    heading += ["step ms", "compute ms", "wait ms", "disk ms", "tok/s", "predicted / measured"]
    cells = []
    for case, found in rows_of(records, PlacementCase, PlacementMetrics):
        limit = MISSING if case.memory_bytes is None else f"{case.memory_bytes / MEBI:.0f}"
        about = [case.model, case.kv_format or "float32", limit, str(case.batch), str(case.context), str(case.goal)]
        figures = [_pair(found, "disk_bytes", 1e-6), *(_pair(found, part, 1e3) for part in PARTS)]
        rates = " / ".join(_number(rate, 2) for rate in (found.predicted_tok_s, found.measured_tok_s))
        cells.append([*about, *figures, rates, _number(found.ratio, 3)])
    return heading, cells, [False, False, True, True, True, False, *[True] * 7]


def _pair(found: PlacementMetrics, part: str, scale: float) -> str:
    return " / ".join(_number(_value(step, part, scale), 1) for step in (found.step, found.measured))


def _value(step: StepTime | None, part: str, scale: float) -> float | None:
    return None if step is None else getattr(step, part) * scale


def _number(value: float | None, digits: int) -> str:
    return MISSING if value is None else f"{value:.{digits}f}"


RANKS_NOTE = (
    "Distances are from the logits of one rank. The floor is the mean KLD of one rank from the same model in float32. "
    "Bytes are those of all ranks per token, as counted; `!` marks a count that is not the formula's"
)


def ranks_cells(records: list[Record]) -> Cells:
    """One row per model, recipe and outcome: divisions with the same figures share a row."""
    heading = ["model", "recipe", "compute", "ranks", "verdict", "max logit delta", "mean KLD", "same top"]
    heading += ["floor: mean KLD", "tokens", "bytes per token", "link", "legal instead"]
    recipes: dict[tuple[str, ...], dict[tuple[str, ...], list[tuple[str, str]]]] = {}
    for case, found in rows_of(records, RanksCase, RanksMetrics):
        layout = RankLayout(case.tp, case.pp, case.cut, case.ep, case.sp, case.micro_batches, case.dispatch)
        of_recipe = (str(case.model), setup_name(case.recipe, case.kv_format, case.prefill), case.compute or MISSING)
        outcome = (found.verdict, *distances(found), found.link or MISSING, instead(found.reason))
        recipes.setdefault(of_recipe, {}).setdefault(outcome, []).append((str(layout), sent(found)))
    cells = []
    for of_recipe, outcomes in recipes.items():
        for (verdict, *figures, link, legal), divisions in outcomes.items():
            layouts, counts = map("; ".join, zip(*divisions, strict=True))
            cells.append([*of_recipe, layouts, verdict, *figures, counts, link, legal])
    return heading, cells, [False] * 5 + [True] * 6 + [False] * 2


def instead(reason: str | None) -> str:
    """The legal alternatives of a refusal, or its whole reason; old rows have `--tp 2` for `tp=2`."""
    if reason is None:
        return ""
    words = re.sub(r"--(tp|pp|ep|sp) (\d+) --cut gather", r"\1=\2,cut=gather", reason.partition("legal: ")[2] or reason)
    return re.sub(r"--(tp|pp|ep|sp|cut)\b", r"\1", re.sub(r"--(tp|pp|ep|sp) (\d+)", r"\1=\2", words))


def distances(found: RanksMetrics) -> list[str]:
    delta, floor = found.delta, found.floor
    if delta is None or floor is None:
        return [MISSING] * 5
    numbers = [MISSING if value is None else f"{value:.2e}" for value in (delta.max_logit, delta.mean_kld)]
    top = MISSING if delta.same_top is None else f"{delta.same_top:.4f}"
    least = MISSING if floor.mean_kld is None else f"{floor.mean_kld:.2e}"
    return [*numbers, top, least, str(delta.num_tokens)]


def sent(found: RanksMetrics) -> str:
    traffic = found.exchange
    if traffic is None:
        return MISSING
    counted = (traffic.bytes_per_token, traffic.messages_per_pass)
    is_formula = counted == (traffic.expected_bytes_per_token, traffic.expected_messages_per_pass)
    return f"{traffic.bytes_per_token:.0f}" + ("" if is_formula else " !")


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
            cells.append([case.model.rpartition("/")[2], _target(case), *_file(each, found), _rounded(cost, 1)])
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
    return [name + " *" * is_chosen, f"{bits:.3f}", _estimate(each.kld, "{:.2e}"), _rounded(shares, 2), _ratio(each)]


def _ratio(each: SearchedFile) -> str:
    return "" if each.ratio is None else _estimate(each.ratio, "{:.2f}")


def _estimate(value: Estimate, form: str) -> str:
    ends = "" if value.interval is None else f" [{', '.join(form.format(end) for end in value.interval)}]"
    return form.format(value.value) + ends


def _rounded(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"
