"""Speeds of further launches, joined to the rows of the cases that they measured once more."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.measure.records.kinds import AGAIN
from qbench.store.columns import COLUMNS, NUMBER, ORIGIN, TEXT, Column
from qbench.store.load import create_latest

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

SPEEDS = ("pp_tok_s", "tg_tok_s")
AGAIN_COLUMNS = {
    "of": Column("case.of", TEXT),
    **{name: Column(name, TEXT) for name in ("code", "status")},
    **{name: ORIGIN[name] for name in ("machine", "time", "key")},
    **{name: COLUMNS.get(name, Column(f"metrics.{name}", NUMBER)) for name in SPEEDS},
}


def join_launches(con: "DuckDBPyConnection", table: str, files: Sequence[Path]) -> None:
    """Replace the speeds of `table`, which `create_results` made, by the geometric mean of all launches.

    The column `launches` is their number. Launches of other code do not join, as in `compare`.
    """
    create_latest(con, "again", files, AGAIN_COLUMNS, AGAIN)
    means = ", ".join(f"exp((ln({name}) + sum_{name}) / (1 + num_{name})) as mean_{name}" for name in SPEEDS)
    sums = ", ".join(f"sum(ln({name})) as sum_{name}, count({name}) as num_{name}" for name in SPEEDS)
    replaced = ", ".join(f"coalesce(mean_{name}, {name}) as {name}" for name in SPEEDS)
    con.execute(
        f"""
        create or replace temp table joined as
        select {table}.rowid as place, {means}, 1 + greatest({", ".join(f"num_{name}" for name in SPEEDS)}) as launches
        from {table} join (
            select "of" as key, machine, code, {sums} from again where status = 'ok' group by all
        ) using (key, machine, code);
        create or replace temp table {table} as
        select {table}.* replace ({replaced}), coalesce(launches, 1) as launches
        from {table} left join joined on {table}.rowid = joined.place order by {table}.rowid;
        drop table joined; drop table again
        """
    )
