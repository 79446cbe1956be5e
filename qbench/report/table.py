"""The tables to decide from: one a group, Pareto points marked."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from qbench.report.extra_columns import with_extra
from qbench.report.family import recipe_family
from qbench.report.pareto import pareto_front

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, slots=True)
class Table:
    """Rows that compare with one another, the unquantized first, then by size."""

    group: str
    frame: "pd.DataFrame"  # `load_records` columns, those of `with_extra`, `pareto` and `family`

    @property
    def title(self) -> str:
        first = self.frame.iloc[0]
        return f"{first['model']} on {first['cpu']}"

    @property
    def note(self) -> str:
        """One sentence a reader needs: what was measured, where, by which code."""
        first = self.frame.iloc[0]
        parts = [
            f"{count(first['threads'], 'thread')} of {count(first['cores'], 'core')}",
            f"machine {first['machine']}",
        ]
        protocols = self.frame[["protocol", "protocol_hash"]].dropna()  # a row that failed has none
        if len(protocols):
            parts.insert(0, "protocol {} ({})".format(*protocols.iloc[0]))
        commits = self.frame[["commit", "dirty"]].drop_duplicates().itertuples(index=False)
        parts.append("commit " + ", ".join(short_commit(*pair) for pair in commits))
        return "; ".join(parts)

    @property
    def failures(self) -> list[tuple[str, str]]:
        failed = self.frame[self.frame["status"] != "ok"]
        return list(zip(failed["recipe"], failed["error"], strict=True))


def count(number: float, thing: str) -> str:
    """ "1 core", "2 cores" """
    return f"{number:.0f} {thing}" + ("" if number == 1 else "s")


def short_commit(commit: str | None, dirty: bool | None) -> str:
    if not isinstance(commit, str):
        return "unknown"
    return commit[:10] + ("+changes" if dirty else "")


def build_tables(frame: "pd.DataFrame") -> list[Table]:
    """One table a group, in the order of their first rows, Pareto points marked."""
    tables = []
    for group, rows in with_extra(frame).groupby("group", sort=False):
        rows = rows.reset_index(drop=True)
        rows["pareto"] = _pareto_marks(rows)
        rows["family"] = rows["recipe"].map(recipe_family)
        tables.append(Table(str(group), rows))
    return tables


def quality_column(rows: "pd.DataFrame") -> str:
    """What quality is read from: divergence where it was measured, else perplexity."""
    return "kld_mean" if rows["kld_mean"].notna().any() else "perplexity"


def _pareto_marks(rows: "pd.DataFrame") -> list[str]:
    """ "size", "speed", both or "": where no other row has better quality for as little."""
    numbers = rows[[quality_column(rows), "size_bytes", "tg_tok_s"]].astype(float)
    quality, size, speed = (numbers[column].to_numpy() for column in numbers)
    fronts = {
        "size": pareto_front(np.stack([quality, size], axis=1)),
        "speed": pareto_front(np.stack([quality, -speed], axis=1)),
    }
    return [" ".join(name for name, front in fronts.items() if front[i]) for i in range(len(rows))]
