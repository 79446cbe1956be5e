"""Items of well-known tasks: rows as they are, in turn by kind, and one line for a file that is missing."""

import hashlib
import json

import pytest

from qbench import real
from qbench.real import RealFile, real_file
from qbench.run.work import TasksWork
from qbench.tasks.catalogue import load_tasks
from qbench.tasks.names import OFFLINE, check_task_names
from qbench.tasks.real_items import needles
from quant.errors import InputError

NAMES = sorted(path.stem for path in (OFFLINE / "real").glob("*.yaml"))
ROWS = {
    "blimp": [{"sentence_good": f"{kind}{i}", "sentence_bad": "x", "UID": kind} for kind in "ab" for i in range(3)],
    "copa": [
        {"premise": "It rained.", "choice1": "It dried.", "choice2": "It got wet.", "question": "effect", "label": 1}
    ],
    "lambada": [{"text": "a b c"}],
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("QBENCH_REAL", str(tmp_path))
    real_file.cache_clear()
    for name, rows in ROWS.items():
        content = "".join(json.dumps(row) + "\n" for row in rows).encode()
        (tmp_path / f"{name}.jsonl").write_bytes(content)
        file = RealFile(f"{name}.jsonl", len(content), "none", name, hashlib.sha256(content).hexdigest())
        monkeypatch.setitem(real.ITEMS, name, file)
    yield tmp_path
    real_file.cache_clear()


def items(name: str) -> list:
    task = load_tasks(TasksWork((name,)))["tasks"][name]
    return [(task.doc_to_text(doc), task.doc_to_choice(doc), task.doc_to_target(doc)) for doc in task.test_docs()]


def test_kinds_of_mistakes_come_in_turn(folder):
    good = [choices[0] for _, choices, _ in items("real_blimp")]
    assert good == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_a_premise_is_joined_with_both_ends(folder):
    assert items("real_copa") == [("It rained therefore", [" it dried.", " it got wet."], 1)]


def test_the_last_word_is_asked_for(folder):
    task = load_tasks(TasksWork(("real_lambada",)))["tasks"]["real_lambada"]
    (doc,) = task.test_docs()
    assert (task.doc_to_text(doc), task.doc_to_target(doc)) == ("a b", " c")


def test_a_needle_is_in_its_text_at_even_depths(folder, monkeypatch):
    content = b"It was a bright day in the town. " * 400
    (folder / "books.txt").write_bytes(content)
    file = RealFile("books.txt", len(content), "none", "books", hashlib.sha256(content).hexdigest())
    monkeypatch.setitem(real.TEXTS, "books", file)
    docs = needles("real:books", [1000, 2000], 4)["test"]
    assert [doc["chars"] for doc in docs] == [1000] * 4 + [2000] * 4
    for number, doc in enumerate(docs):
        sentence = f"{doc['context'].rpartition('. ')[2]} {doc['answer']}."
        depth = doc["context"].index(sentence) / len(doc["context"])
        assert depth == pytest.approx(number % 4 / 4, abs=0.1) and len(doc["context"]) <= doc["chars"] + 200


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_file_gets_one_line(tmp_path, monkeypatch, name):
    monkeypatch.setenv("QBENCH_REAL", str(tmp_path / "nowhere"))
    real_file.cache_clear()
    check_task_names(TasksWork((name,)))
    with pytest.raises(InputError, match=rf"task {name} cannot be loaded: real:\w+: .* is not there; `make real`"):
        load_tasks(TasksWork((name,)))
