"""Reports: tables and a page from records."""

from qbench.report.markers import replace_between_markers
from qbench.report.write import (
    NAMED_TABLES,
    Report,
    render_named,
    render_report,
    select_rows,
    write_page,
    write_report,
)
from qbench.store import load_records

__all__ = [
    "NAMED_TABLES",
    "Report",
    "load_records",
    "render_named",
    "render_report",
    "replace_between_markers",
    "select_rows",
    "write_page",
    "write_report",
]
