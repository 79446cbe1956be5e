"""Finding tasks by name: this project's offline ones, those of folders that are named, lm-eval's own."""

import random
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from qbench.run.work import TasksWork
from qbench.tasks.names import OFFLINE, offline_names, unknown_task
from quant.errors import InputError

if TYPE_CHECKING:
    from lm_eval.tasks import TaskManager
    from lm_eval.tasks.manager import TaskDict

FEWSHOT_SEED = 1234  # lm-eval's own
ITEMS_SEED = 42  # as RULER's own


class Loaded(TypedDict):
    """As lm-eval's evaluator takes them."""

    tasks: dict[str, Any]
    groups: dict[str, Any]
    group_map: dict[str, list[str]]


def load_tasks(settings: TasksWork, tokenizer: Path | None = None) -> Loaded:
    """The tasks and groups that the settings name.

    tokenizer  folder of the tokenizer that tasks of a given length in tokens use, unless their metadata names one
    raises   InputError for an unknown task (with the nearest names), and for one whose data cannot be had
    """
    folders = [OFFLINE, *map(Path, settings.include)]
    for folder in folders[1:]:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder of task files")
    metadata = ({} if tokenizer is None else {"tokenizer": str(tokenizer)}) | dict(settings.metadata)
    manager, names = _find(settings.names, folders, metadata)
    loaded = Loaded(tasks={}, groups={}, group_map={})
    for name in names:
        found = _load(manager, name)
        for kind in ("tasks", "groups", "group_map"):
            loaded[kind] |= found.get(kind, {})
    for name, task in loaded["tasks"].items():
        if getattr(task, "UNSAFE_CODE", False) or getattr(task, "MULTIMODAL", False):
            raise InputError(f"task {name} runs code that a model writes, or shows it pictures: neither is done here")
        _set_examples(task, settings.num_fewshot)
    return loaded


def _find(names: Sequence[str], folders: list[Path], metadata: dict[str, Any]) -> tuple["TaskManager", list[str]]:
    """The manager that knows all names, and the names that they mean.

    lm-eval's own index has 15 thousand entries and takes seconds to read, so it is read only if it is needed.
    """
    from lm_eval.tasks import TaskManager

    known: Iterable[str] = ()
    for defaults in (False, True):
        manager = TaskManager(include_path=[*folders], include_defaults=defaults, metadata=metadata)
        known = set(manager.all_tasks)
        matches = {name: sorted(n for n in known if fnmatch(n, name)) for name in names}
        if all(matches.values()):
            return manager, list(dict.fromkeys(match for found in matches.values() for match in found))
    missing = next(name for name, found in matches.items() if not found)
    raise unknown_task(missing, list(known))


def _load(manager: "TaskManager", name: str) -> "TaskDict":
    try:
        return _load_with_seed(manager, name)
    except Exception as error:  # task files and the hubs that they read from may raise anything
        reason = " ".join(str(error).split()) or "no reason given"
        raise InputError(
            f"task {name} cannot be loaded: {reason[:300]} ({type(error).__name__}); most tasks fetch their data, "
            f"without a network there are {', '.join(offline_names())} and the folders of --include-path"
        ) from error


def _load_with_seed(manager: "TaskManager", name: str) -> "TaskDict":
    """A task that draws its items from the global generators, as RULER's do, gets the same items in every load.

    A package that is imported for the task may draw, too. The task is then loaded again, without imports.
    """
    seeded, num_modules = _seed(), len(sys.modules)
    found = manager.load([name])
    if random.getstate() == seeded or len(sys.modules) == num_modules:
        return found
    _seed()
    return manager.load([name])


def _seed() -> object:
    """The state of Python's generator after both were seeded."""
    random.seed(ITEMS_SEED)
    np.random.seed(ITEMS_SEED)
    return random.getstate()


def _set_examples(task: Any, num_fewshot: int | None) -> None:
    """As many solved examples as asked for; a task that says 0 itself has no examples."""
    own = task.get_config("num_fewshot")
    if num_fewshot is not None and own != 0:
        task.set_config(key="num_fewshot", value=num_fewshot)
    elif own is None:
        task.set_config(key="num_fewshot", value=0)
    task.set_fewshot_seed(seed=FEWSHOT_SEED)
