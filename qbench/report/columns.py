"""The columns of a table for people: headings, and each cell's text."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qbench.report.table import Table

MISSING = "n/a"


def is_missing(value: Any) -> bool:
    return value is None or value != value


@dataclass(frozen=True, slots=True)
class Column:
    """One column for people: its heading, its text from a row, and what a sortable table sorts by."""

    heading: str
    text: Callable[[dict[str, Any]], str]
    key: str
    numeric: bool = True

    def cell(self, row: dict[str, Any]) -> str:
        return MISSING if is_missing(row[self.key]) else self.text(row)


def columns_of(table: Table) -> list[Column]:
    """The columns that have anything to show in this table."""
    first = table.frame.iloc[0]
    depth = f"@{first['depth']:.0f}" if not is_missing(first["depth"]) and first["depth"] else ""
    pp, tg = (name if is_missing(first[name]) else f"{name}{first[name]:.0f}{depth}" for name in ("pp", "tg"))
    columns = [
        Column("recipe", lambda row: row["recipe"], "recipe", numeric=False),
        Column("bits/weight", lambda row: f"{row['bits_per_weight']:.2f}", "bits_per_weight"),
        Column("size MB", lambda row: f"{row['size_bytes'] / 1e6:.2f}", "size_bytes"),
        Column("perplexity [95 %]", _perplexity, "perplexity"),
        Column("mean KLD", lambda row: scientific(row["kld_mean"]), "kld_mean"),
        Column("p99 KLD", lambda row: scientific(row["kld_p99"]), "kld_p99"),
        Column("same top %", lambda row: f"{100 * row['same_top']:.2f}", "same_top"),
        Column(f"{pp} tok/s [range]", lambda row: _speed(row, "pp"), "pp_tok_s"),
        Column(f"{tg} tok/s [range]", lambda row: _speed(row, "tg"), "tg_tok_s"),
        Column("roofline % [pp / tg]", _roofline, "roofline_tg"),
        Column("peak RSS MB", lambda row: f"{row['peak_rss_bytes'] / 1e6:.0f}", "peak_rss_bytes"),
        Column("quantize s [peak MB]", _quantize, "quantize_seconds"),
        Column("kernels", lambda row: row["impls"], "impls", numeric=False),
        Column("Pareto", lambda row: row["pareto"], "pareto", numeric=False),
    ]
    return [column for column in columns if table.frame[column.key].notna().any()]


def scientific(value: float) -> str:
    """3 digits, and 0 as "0": a divergence spans many powers of ten."""
    return "0" if value == 0 else f"{value:.2e}"


def _perplexity(row: dict[str, Any]) -> str:
    if is_missing(row["perplexity_low"]):
        return f"{row['perplexity']:.3f}"
    return f"{row['perplexity']:.3f} [{row['perplexity_low']:.3f}, {row['perplexity_high']:.3f}]"


def _quantize(row: dict[str, Any]) -> str:
    """Seconds and memory of making the artifact, calibration included."""
    peak = row["quantize_peak_rss_bytes"]
    return f"{row['quantize_seconds']:.1f} [{MISSING if is_missing(peak) else format(peak / 1e6, '.0f')}]"


def _roofline(row: dict[str, Any]) -> str:
    shares = (row["roofline_pp"], row["roofline_tg"])
    return " / ".join(MISSING if is_missing(share) else f"{100 * share:.0f}" for share in shares)


def _speed(row: dict[str, Any], phase: str) -> str:
    """Median and the range of the repetitions."""
    digits = 1 if row[f"{phase}_tok_s"] < 100 else 0
    median, low, high = (f"{row[f'{phase}_{what}']:.{digits}f}" for what in ("tok_s", "min", "max"))
    return f"{median} [{low}, {high}]"
