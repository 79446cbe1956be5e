"""lm-eval's tasks on every artifact and cache: `run_tasks` measures the tasks of `TasksWork`."""

from qbench.run.work import TasksWork
from qbench.tasks.run import run_tasks

__all__ = ["TasksWork", "run_tasks"]
