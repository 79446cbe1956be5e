"""Tables of agreement: do two models put the same recipes in the same order by mean KLD?

The order of one model predicts that of another if Kendall's tau is near 1. Both models prefer the same one
of two random recipes with probability (1 + tau) / 2.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from qbench.measure.records.record import Record
from qbench.report.family import recipe_family
from qbench.report.kinds import origin
from qbench.report.policy_rows import PolicyRow, policy_rows
from qbench.report.recorded import recorded
from qbench.run.cache_spec import FULL
from qbench.statistics.estimate import ALPHA, Estimate
from qbench.statistics.intervals import RESAMPLES, SEED
from qbench.words.read import count, markdown_grid
from quant.kv_names import FLOAT32

LEAST_RECIPES = 6  # fewer have no interval that says anything
MOST_MOVED = 5  # recipes of a pair that the table names
MISSING = "n/a"


@dataclass(frozen=True, slots=True)
class Ranking:
    """The recipes of one model on one text.

    name  for people: model, and text if records have several
    rows  recipe -> its row
    """

    name: str
    rows: Mapping[str, PolicyRow]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Two rankings of the recipes that both have.

    recipes   in the order of the first ranking, the one that loses least first
    places    [2, n] place of each recipe in either ranking, from 0
    tau       Kendall's, with an interval over recipes
    reversed  pairs of recipes in opposite order
    clear     reversed pairs whose intervals of KLD are apart in both rankings
    """

    recipes: Sequence[str]
    places: np.ndarray
    tau: Estimate
    num_pairs: int
    reversed: int
    clear: int


def agreement_markdown(records: Iterable[Record]) -> str:
    """Agreement of each pair of models and texts, and the recipes and families that move; "" without a pair.

    records   the latest of each case of a sweep that was measured
    """
    rankings = rankings_of(records)
    pairs = [(a, b, agreement(a, b)) for a, b in combinations(rankings, 2)]
    found = [(a, b, one) for a, b, one in pairs if one is not None]
    if not found:
        return ""
    rows = [row.judged for ranking in rankings for row in ranking.rows.values()]
    parts = ["**Agreement on the order of recipes by mean KLD**", _summary(found)]
    parts += ["**Recipes that move most**, with their places in either order", _moved(found)]
    parts += ["**Families**: mean change of place, and recipes", _families(found)]
    return "\n\n".join([*parts, _footer(rows)]) + "\n"


def rankings_of(records: Iterable[Record]) -> list[Ranking]:
    """One per model, text and protocol, in the order of the records, under the full cache."""
    groups: dict[tuple[str, str, str], dict[str, PolicyRow]] = {}
    for row in policy_rows_by_text(records):
        work = row.case.quality
        text = work.text or "" if work else ""
        key = str(row.case.model), text, _protocol(row)
        groups.setdefault(key, {})[_name(row)] = row
    several = {model for (model, *_), (other, *_) in combinations(groups, 2) if model == other}
    return [
        Ranking(f"{model}, {text.rpartition(':')[2]}" if model in several and text else model, rows)
        for (model, text, _), rows in groups.items()
    ]


def _name(row: PolicyRow) -> str:
    """The recipe, and the KV format if the recipe does not name it."""
    recipe, kv_format = recorded(row.case.recipe), row.case.kv_format
    return recipe if kv_format in (None, FLOAT32) or kv_format in recipe else f"{recipe} with {kv_format}"


def _protocol(row: PolicyRow) -> str:
    protocol = row.quality and row.quality.protocol
    return str(protocol.name) if protocol else ""


def policy_rows_by_text(records: Iterable[Record]) -> Iterable[PolicyRow]:
    """Rows with a KLD under the full cache; records of different texts stay apart."""
    by_text: dict[str | None, list[Record]] = {}
    for record in records:
        work = record.model_case.quality
        by_text.setdefault(work.text if work else None, []).append(record)
    for rows in by_text.values():
        for row in policy_rows(rows):
            if row.mean_kld is not None and row.case.policy == FULL and row.case.recipe is not None:
                yield row


def agreement(a: Ranking, b: Ranking) -> Agreement | None:
    """None if fewer than LEAST_RECIPES are in both."""
    shared = [recipe for recipe in a.rows if recipe in b.rows]
    if len(shared) < LEAST_RECIPES:
        return None
    recipes = sorted(shared, key=lambda recipe: recorded(a.rows[recipe].mean_kld))
    kld = np.array([[recorded(side.rows[recipe].mean_kld) for recipe in recipes] for side in (a, b)])
    ends = np.array([[_interval(side.rows[recipe]) for recipe in recipes] for side in (a, b)])  # [2, n, 2]
    signs = np.sign(kld[:, :, None] - kld[:, None, :])  # [2, n, n]
    apart = np.all((ends[:, :, None, 1] < ends[:, None, :, 0]) | (ends[:, None, :, 1] < ends[:, :, None, 0]), axis=0)
    opposite = signs[0] * signs[1] < 0
    return Agreement(
        recipes,
        np.array([np.argsort(np.argsort(side, kind="stable"), kind="stable") for side in kld]),
        kendall_tau(kld[0], kld[1]),
        len(recipes) * (len(recipes) - 1) // 2,
        int(opposite.sum()) // 2,
        int((opposite & apart).sum()) // 2,
    )


def _interval(row: PolicyRow) -> tuple[float, float]:
    """The whole line without an interval: nothing is apart from it."""
    low, high = (row.quality and row.quality.kld_interval) or (-np.inf, np.inf)
    return low, high


def kendall_tau(x: np.ndarray, y: np.ndarray) -> Estimate:
    """Kendall's tau-b of x [n] and y [n], with the percentile interval of a bootstrap over the n.

    A pair of draws of the same element counts nothing.
    source   Kendall 1945, The treatment of ties in ranking problems
    """
    of_x, of_y = (np.sign(each[:, None] - each[None, :]) for each in (x, y))  # [n, n]
    rng, n = np.random.default_rng(SEED), len(x)
    counts = rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(float)  # [R, n]
    drawn = _tau(counts, of_x, of_y)
    low, high = np.nanquantile(drawn, [ALPHA / 2, 1 - ALPHA / 2])
    return Estimate(float(_tau(np.ones((1, n)), of_x, of_y)[0]), float(np.nanstd(drawn)), float(low), float(high))


def _tau(counts: np.ndarray, of_x: np.ndarray, of_y: np.ndarray) -> np.ndarray:
    """[R] for counts [R, n] of each element; NaN if all drawn elements are equal"""

    def total(weights: np.ndarray) -> np.ndarray:
        return np.einsum("ri,ri->r", counts @ weights, counts)

    norm = np.sqrt(total(np.abs(of_x)) * total(np.abs(of_y)))
    return np.divide(total(of_x * of_y), norm, out=np.full(len(counts), np.nan), where=norm > 0)


Found = Sequence[tuple[Ranking, Ranking, Agreement]]


def _summary(found: Found) -> str:
    heading = ["order of", "order of", "recipes", "Kendall's tau [95 %]", "same order %", "pairs reversed", "clearly"]
    lines = [heading]
    for a, b, one in found:
        tau = one.tau
        lines.append(
            [
                a.name,
                b.name,
                str(len(one.recipes)),
                f"{tau.value:.2f} [{tau.low:.2f}, {tau.high:.2f}]",
                f"{50 * (1 + tau.value):.0f}",
                f"{one.reversed} of {one.num_pairs}",
                str(one.clear),
            ]
        )
    return markdown_grid(lines, [False, False, *[True] * 5])


def _moved(found: Found) -> str:
    lines = [["order of", "order of", "better than predicted", "worse than predicted"]]
    for a, b, one in found:
        change = one.places[1] - one.places[0]
        order = np.argsort(change, kind="stable")
        better = ", ".join(_move(one, i) for i in order[:MOST_MOVED] if change[i] < 0)
        worse = ", ".join(_move(one, i) for i in order[::-1][:MOST_MOVED] if change[i] > 0)
        lines.append([a.name, b.name, better or MISSING, worse or MISSING])
    return markdown_grid(lines, [False] * 4)


def _move(one: Agreement, i: int) -> str:
    """ "q4_0 40 to 52", from 1"""
    first, second = one.places[:, i] + 1
    return f"{one.recipes[i]} {first} to {second}"


def _families(found: Found) -> str:
    names = list(dict.fromkeys(recipe_family(recipe) for _, _, one in found for recipe in one.recipes))
    lines = [["order of", "order of", *names]]
    for a, b, one in found:
        change = one.places[1] - one.places[0]
        cells = []
        for name in names:
            own = [change[i] for i, recipe in enumerate(one.recipes) if recipe_family(recipe) == name]
            cells.append(f"{np.mean(own):+.1f} ({len(own)})" if own else MISSING)
        lines.append([a.name, b.name, *cells])
    return markdown_grid(lines, [False, False, *[True] * len(names)])


def _footer(rows: Sequence[Record]) -> str:
    by_machine: dict[str, list[Record]] = {}
    for row in rows:
        by_machine.setdefault(row.machine.id, []).append(row)
    return (
        "same order %: share of pairs of recipes that both models put in the same order. clearly: reversed pairs "
        f"whose 95 % intervals of KLD are apart in both orders. Intervals of tau: {count(RESAMPLES, 'resample')} of "
        "the recipes. Places count from 1, the recipe that loses least; a positive change is a place further down in "
        f"the second order.\n\n{'; '.join(origin(list(group)) for group in by_machine.values())}."
    )
