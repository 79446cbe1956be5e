"""The table of records of `qbench compare --keep` of several ranks: which division gives which logits."""

from qbench.measure.records.kept_ranks import RanksCase, RanksMetrics, setup_name
from qbench.measure.records.record import Record
from qbench.rank_layout import RankLayout
from qbench.report.speeds import Cells
from qbench.report.typed_rows import rows_of

MISSING = "n/a"
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
    """The legal alternatives of a refusal, or its whole reason"""
    return "" if reason is None else reason.partition("legal: ")[2] or reason


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
