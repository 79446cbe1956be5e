"""Reports: tables and a page from records."""

from qbench.report.markers import replace_between_markers
from qbench.report.write import (
    Report,
    render_attention,
    render_caches,
    render_interaction,
    render_mixes,
    render_policies,
    render_report,
    write_page,
    write_report,
)
from qbench.store import load_records

__all__ = [
    "Report",
    "load_records",
    "render_attention",
    "render_caches",
    "render_interaction",
    "render_mixes",
    "render_policies",
    "render_report",
    "replace_between_markers",
    "write_page",
    "write_report",
]
