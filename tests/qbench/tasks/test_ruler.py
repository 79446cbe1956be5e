"""RULER's first task on a model that can answer it, with every token kept and under policies."""

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from support.copying_model import write_copying_model

from qbench.run.cache_spec import FULL
from qbench.run.options import RunOptions
from qbench.run.work import HIDDEN, VISIBLE, TasksWork
from qbench.tasks import run
from qbench.tasks.catalogue import load_tasks
from qbench.tasks.evaluate import evaluate_tasks

pytest.importorskip("wonderwords", reason="RULER's words are not installed; the extra `ruler` does")

TASK, NUM_ITEMS, LENGTH = "niah_single_1", 6, 1000
# Every "is", of the question and of the text around it, attends to the token before a number of seven digits. They stay
# as its neighbours if the kernel reaches them; the default, 5, reaches two.
WIDE = "snapkv:budget=256,kernel=15"
# The prompt ends in "is", and the number is after ":" in the text.
READ_AS = {"Ġis": ":"}


@pytest.fixture(scope="module")
def copying_model(tmp_path_factory) -> Path:
    return write_copying_model(tmp_path_factory.mktemp("copying"), READ_AS)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory) -> Iterator[list]:
    """The tasks of all runs, which lm-eval lists once. It looks for data of NLTK that this task does not read, and else
    fetches it.
    """
    folder = tmp_path_factory.mktemp("nltk")
    (folder / "tokenizers" / "punkt_tab").mkdir(parents=True)
    found = []

    def load_once(*given):
        if not found:
            found.append(load_tasks(*given))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nltk.data.path", [str(folder)])
        patch.setattr(run, "load_tasks", load_once)
        yield found


def is_clear(number: str) -> bool:
    """Whether the two digits before each digit are enough to know it: the model reads no more."""
    pairs = [first + second for first, second in pairwise(number)]
    return len({*pairs}) == len(pairs)


@pytest.mark.exhaustive("lm-eval lists all its tasks for 6 seconds")
@pytest.mark.parametrize(
    ("policy", "question", "answers"),
    [
        (FULL, None, True),
        (FULL, HIDDEN, True),
        (WIDE, VISIBLE, True),
        (WIDE, HIDDEN, True),
        ("snapkv:budget=256", VISIBLE, False),
        ("recent:budget=64", None, False),
    ],
)
def test_answers_are_right_if_the_needle_is_kept(copying_model, loaded, policy, question, answers):
    settings = TasksWork((TASK,), NUM_ITEMS, metadata={"max_seq_lengths": [LENGTH]}, question=question)
    (result,) = evaluate_tasks(str(copying_model), settings, RunOptions(policy=policy, threads=1)).tasks.values()
    items = list(loaded[0]["tasks"][TASK].eval_docs)[:NUM_ITEMS]
    clear = [is_clear(item["outputs"][0]) for item in items]
    right = [digit == "1" for digit in result.correct]
    assert result.metric == str(LENGTH) and sum(clear) >= 3
    assert [each for each, known in zip(right, clear, strict=True) if known] == [answers] * sum(clear)
