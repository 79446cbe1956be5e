"""qbench: quantize a language model many ways, and measure what each costs on this machine."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from qbench.version import __version__ as __version__

if TYPE_CHECKING:
    import pandas as pd

# torch's OpenMP threads by default spin for milliseconds after each parallel loop, and keep a core from the
# kernels' own threads that come next. About 1000 turns bridge two loops in a row; then they sleep. The library
# reads this when torch is first imported, and a policy that the user has set stands.
SPIN_COUNT = "1000"
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)


def results(paths: str | Path | Iterable[str | Path] | None = None) -> "pd.DataFrame":
    """The latest measurement of each case, one row each: what `qbench query "from results"` sees.

    paths    files of records, or folders of them; by default `results` and `runs` where they are here
    raises   InputError for a file that cannot be read, and where there is none
    """
    from qbench.measure.records.record_files import default_folders
    from qbench.store import load_records

    return load_records(default_folders() if paths is None else paths)
