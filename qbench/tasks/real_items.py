"""Items of well-known tasks for real models, from the files that `make real` copies.

The task files of suites/tasks/real name these functions; their templates follow lm-eval's tasks.
"""

import json
import re
from collections.abc import Sequence
from random import Random

import datasets
from lm_eval.tasks.hellaswag.utils import process_docs as hellaswag_items
from lm_eval.tasks.super_glue.copa.utils import doc_to_choice as copa_choices
from lm_eval.tasks.super_glue.copa.utils import doc_to_text as copa_text

from qbench.real import real_file

THINGS = ("anchor", "basket", "compass", "engine", "garden", "hammer", "ladder", "mirror", "ribbon", "teapot")
Items = dict[str, datasets.Dataset]


def rows(items: str, **about: object) -> Items:
    """The rows as they are. raises InputError for a file that is missing or changed"""
    return {"test": _read(items)}


def blimp(items: str, **about: object) -> Items:
    """The rows with kinds of mistakes in turn, so that the first items have all kinds."""
    found = _read(items)
    num_kinds = len(set(found["UID"]))
    of_kind = len(found) // num_kinds
    return {"test": found.select([kind * of_kind + i for i in range(of_kind) for kind in range(num_kinds)])}


def hellaswag(items: str, **about: object) -> Items:
    """Rows with `query`, `choices` and `gold`, cleaned as lm-eval does."""
    return {"test": hellaswag_items(_read(items))}


def copa(items: str, **about: object) -> Items:
    """Rows with `query` and `choices`: the premise with because or therefore, and its two ends."""
    return {"test": _read(items).map(lambda row: {"query": copa_text(row), "choices": copa_choices(row)})}


def needles(text: str, chars: Sequence[int], count: int, **about: object) -> Items:
    """A number that one sentence of a real text names, asked for at the end; `count` items per length, at even depths.

    text    a text of qbench.real
    chars   lengths of the items; English has about four characters per token
    """
    words, rng = real_file(text, "text").read_text(encoding="utf-8").split(), Random(0)
    found = []
    for length in chars:
        for item in range(count):
            thing, number = rng.choice(THINGS), str(rng.randrange(1000, 10_000))
            start = rng.randrange(len(words) - length // 2)
            hay = " ".join(words[start : start + length // 2])[:length].rpartition(".")[0] + "."
            sentences = re.split(r"(?<=[.!?]) ", hay)
            sentences.insert(len(sentences) * item // count, f"The secret number of the {thing} is {number}.")
            asked = f"The secret number of the {thing} is"
            found.append({"context": f"{' '.join(sentences)} {asked}", "answer": number, "chars": length})
    return {"test": datasets.Dataset.from_list(found)}


def _read(items: str) -> datasets.Dataset:
    lines = real_file(items, "items").read_text(encoding="utf-8").splitlines()
    return datasets.Dataset.from_list([json.loads(line) for line in lines])
