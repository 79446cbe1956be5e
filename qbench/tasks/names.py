"""Whether named tasks exist, by the text of their files: lm-eval's own index takes ten times as long to read."""

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

from qbench.run.work import TasksWork
from qbench.words.written import nearest
from quant.errors import InputError

SUFFIXES = ("", ".yaml", ".yml")  # files that others include have no suffix
# `key: word`, `- word` or both: names of tasks, groups and tags, and other words.
WORD_LINE = re.compile(
    r"""^[ \t]*(?:-[ \t]+)*(?:["']?\w+["']?:[ \t]+)?["']?([^\s"'#:,\[\]{}]+)["']?[ \t]*(?:#.*)?\r?$""", re.MULTILINE
)
WORD_LIST = re.compile(r"^[ \t]*(?:task|group|tag):[ \t]*\[([^\]]*)\]", re.MULTILINE)
NAME_LINE = re.compile(r"""^(?:task|group|tag):[ \t]+["']?([^\s"'#:,\[\]{}]+)""", re.MULTILINE)
HERE = Path(__file__).resolve()
# In the checkout, or in an installed package at the wheel's place for them (pyproject.toml).
OFFLINE = next(filter(Path.is_dir, (HERE.parents[i] / "suites" / "tasks" for i in (2, 1))))


def check_task_names(settings: TasksWork) -> None:
    """Refuse folders and names that do not exist, before a model is loaded.

    Names in folders of the user's own are left to lm-eval, whose files may build names in other ways.

    raises   InputError with the nearest names
    """
    for folder in settings.include:
        if not Path(folder).is_dir():
            raise InputError(f"{folder}: no such folder of task files")
    own = offline_names()
    others = [name for name in settings.names if not any(fnmatch(known, name) for known in own)]
    if not others or settings.include:
        return
    texts = [text for folder in (OFFLINE, lm_eval_tasks()) for text in task_texts(folder)]
    words = {word for text in texts for word in words_of(text)}
    for name in others:
        if not any(fnmatch(word, name) for word in words):
            raise unknown_task(name, [found for text in texts for found in NAME_LINE.findall(text)])


def unknown_task(name: str, known: Sequence[str]) -> InputError:
    hint = nearest(name, known, most=3) or f"; without a network there are {', '.join(offline_names())}"
    return InputError(f"no task {name!r}{hint}")


def lm_eval_tasks() -> Path:
    """The folder of lm-eval's task files; lm-eval is not imported."""
    found = find_spec("lm_eval")
    assert found is not None and found.origin is not None  # a dependency
    return Path(found.origin).with_name("tasks")


def task_texts(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.suffix in SUFFIXES and path.is_file())
    return [path.read_text("utf-8", errors="replace") for path in files]


def words_of(text: str) -> list[str]:
    """All names that the text gives, and other words."""
    listed = (word.strip(" \n\t\"'") for words in WORD_LIST.findall(text) for word in words.split(","))
    return [*WORD_LINE.findall(text), *listed]


def offline_names() -> list[str]:
    return sorted(path.stem for path in OFFLINE.glob("*.yaml"))
