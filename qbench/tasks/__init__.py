"""lm-eval's tasks on every artifact and cache: `run_tasks` measures the tasks of `TaskSettings`."""

from qbench.tasks.run import run_tasks
from qbench.tasks.settings import TaskSettings

__all__ = ["TaskSettings", "run_tasks"]
