"""lm-eval's tasks on every artifact and cache: `run_tasks` measures, `TaskSettings` says what."""

from qbench.tasks.run import run_tasks
from qbench.tasks.settings import TaskSettings

__all__ = ["TaskSettings", "run_tasks"]
