"""Tasks that need no network and no files but this project's."""

from pathlib import Path

HERE = Path(__file__).resolve()
# In the checkout, or in an installed package at the wheel's place for them (pyproject.toml).
OFFLINE = next(filter(Path.is_dir, (HERE.parents[i] / "suites" / "tasks" for i in (2, 1))))


def offline_names() -> list[str]:
    return sorted(path.stem for path in OFFLINE.glob("*.yaml"))
