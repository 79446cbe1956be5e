"""The progress bar of commands."""

from qbench.progress_bar import Update, progress_bar

__all__ = ["Update", "progress_bar"]
