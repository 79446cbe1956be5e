"""Path of the data next to a checkout. Tests that need it are skipped, and say so, if it is absent."""

from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
KERNEL_SUITES = ("experts", "kernels", "kernels-amx", "kernels-avx2")  # of suites/, those of no models
SHARED = REPO.parent / "shared" / "data"
STORIES260K = SHARED / "models" / "stories260K"
TINYSTORIES_VALID = SHARED / "corpora" / "tinystories" / "valid.txt"

needs_stories = pytest.mark.skipif(not STORIES260K.exists(), reason="shared/data/models/stories260K is absent")
needs_tinystories = pytest.mark.skipif(
    not TINYSTORIES_VALID.exists(), reason="shared/data/corpora/tinystories is absent"
)
TASK_FILES = SHARED / "tasks" / "lm_eval"
needs_task_files = pytest.mark.skipif(not TASK_FILES.exists(), reason="shared/data/tasks is absent")


def written(path: Path, text: str) -> Path:
    """The path of a new file with this text."""
    path.write_text(text)
    return path
