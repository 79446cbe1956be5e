"""Which tasks to run, and how much of them, as commands and suites say it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from qbench.words.written import nearest
from quant.errors import InputError

# Whether a policy sees the question before it compresses the context, see `questions.py`.
QUESTIONS = VISIBLE, HIDDEN, SECOND = "visible", "hidden", "second"


def check_question(name: str) -> None:
    """raises InputError if the name is not one of QUESTIONS"""
    if name not in QUESTIONS:
        raise InputError(f"unknown question {name!r}; known: {', '.join(QUESTIONS)}{nearest(name, QUESTIONS)}")


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """Plain JSON values; raises InputError for impossible values."""

    names: tuple[str, ...]  # tasks, groups or tags that lm-eval or a folder of `include` knows, `*` for many
    limit: int | None = None  # the first items of each task; None: all
    num_fewshot: int | None = None  # solved examples before each item; None: as the task says
    include: tuple[str, ...] = ()  # folders of task files besides lm-eval's own and suites/tasks
    metadata: Mapping[str, Any] = field(default_factory=dict)  # lm-eval's, e.g. {"max_seq_lengths": [4096]} for RULER
    question: str | None = None  # one of QUESTIONS; None: prompts pass as the cache takes them

    def __post_init__(self) -> None:
        for name in ("names", "include"):  # JSON knows lists alone
            object.__setattr__(self, name, tuple(getattr(self, name)))
        if not self.names or not all(isinstance(name, str) and name.strip() for name in self.names):
            raise InputError(f"tasks are {list(self.names)!r}, expected at least one name")
        if not isinstance(self.metadata, Mapping) or not all(isinstance(key, str) for key in self.metadata):
            raise InputError(f"metadata of tasks is {self.metadata!r}, expected names with values")
        if self.limit is not None and self.limit < 1:
            raise InputError(f"the limit of items a task is {self.limit}, expected at least 1")
        if self.question is not None:
            check_question(self.question)
        if self.num_fewshot is not None and self.num_fewshot < 0:
            raise InputError(f"num_fewshot is {self.num_fewshot}, expected 0 or more")
