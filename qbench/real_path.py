"""The file that a name means."""

import os
from pathlib import Path


def real_path(path: str | Path) -> Path:
    """Absolute, and without links. Links in a loop stay, so that whoever opens the file gets the system's reason."""
    return Path(os.path.realpath(path))  # Path.resolve raises RuntimeError for a loop
