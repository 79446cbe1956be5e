"""Reports: tables and a page from records."""

from qbench.report.load import load_records
from qbench.report.markers import replace_between_markers
from qbench.report.write import Report, render_report, write_report

__all__ = ["Report", "load_records", "render_report", "replace_between_markers", "write_report"]
