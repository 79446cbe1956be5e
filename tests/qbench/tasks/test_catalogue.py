"""Tasks that are found by name, and the messages for those that are not."""

import sys

import pytest

from qbench.run.work import TasksWork
from qbench.sources import open_source
from qbench.tasks.catalogue import load_tasks
from qbench.tasks.names import OFFLINE, offline_names
from qbench.tasks.run import tokenizer_folder
from quant.errors import InputError

TASK = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: multiple_choice
test_split: test
doc_to_text: "{{{{question}}}}"
doc_to_choice: ["yes", "no"]
doc_to_target: 0
{more}
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder of one task that can be loaded and one whose data is not there; lm-eval's own are left out."""
    import lm_eval.tasks

    class WithoutDefaults(lm_eval.tasks.TaskManager):
        def __init__(self, include_path, include_defaults, metadata):
            super().__init__(include_path=include_path, include_defaults=False, metadata=metadata)

    monkeypatch.setattr(lm_eval.tasks, "TaskManager", WithoutDefaults)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "items.jsonl").write_text('{"question": "Is it?"}\n{"question": "Are they?"}\n{"question": "Who?"}\n')
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    files = {
        "yes_or_no": ("items.jsonl", ""),
        "zero": ("items.jsonl", "num_fewshot: 0"),
        "lost": ("lost.jsonl", ""),
        "written_code": ("items.jsonl", "unsafe_code: true"),
    }
    for name, (data, more) in files.items():
        (tasks / f"{name}.yaml").write_text(TASK.format(name=name, data=tmp_path / data, more=more))
    return str(tasks)


def test_the_reference_models_own_tasks_are_found_by_default():
    assert offline_names() == [
        "ref_brackets",
        "ref_minimal_pairs",
        "ref_questions_8k",
        "ref_recall",
        "ref_recall_8k",
        "ref_sums",
    ]
    loaded = load_tasks(TasksWork(("ref_su*", "ref_sums", "ref_brackets")))
    assert list(loaded["tasks"]) == ["ref_sums", "ref_brackets"] and loaded["groups"] == {}
    assert len(loaded["tasks"]["ref_sums"].eval_docs) == 300


def test_tasks_of_a_given_folder_are_found(folder):
    loaded = load_tasks(TasksWork(("yes_or_no",), include=(folder,)))
    assert loaded["tasks"]["yes_or_no"].config.num_fewshot == 0


def test_solved_examples_are_set_unless_the_task_has_no_examples(folder):
    tasks = load_tasks(TasksWork(("yes_or_no", "zero"), num_fewshot=2, include=(folder,)))["tasks"]
    assert [task.config.num_fewshot for task in tasks.values()] == [2, 0]


@pytest.mark.parametrize(
    "names, parts",
    [
        pytest.param(("yes_or_not",), ["'yes_or_not'", "did you mean 'yes_or_no'"], id="near"),
        pytest.param(("yes_or_no", "ref_sum"), ["'ref_sum'", "ref_sums"], id="one of several"),
        pytest.param(("0123456789",), ["'0123456789'", "ref_recall"], id="near to none"),
        pytest.param(("nothing_*",), ["'nothing_*'"], id="pattern"),
        pytest.param(("written_code",), ["written_code", "code that a model writes"], id="unsafe"),
        pytest.param(("lost",), ["task lost", "lost.jsonl", "ref_recall", "--include-path"], id="no data"),
    ],
)
def test_a_missing_task_is_one_line(folder, names, parts):
    with pytest.raises(InputError) as error:
        load_tasks(TasksWork(names, include=(folder,)))
    assert "\n" not in str(error.value) and all(part in str(error.value) for part in parts), error.value


def test_no_such_folder():
    with pytest.raises(InputError, match="no/such/folder"):
        load_tasks(TasksWork(("ref_sums",), include=("no/such/folder",)))


@pytest.mark.parametrize(
    "fields, part",
    [
        ({"names": []}, "at least one"),
        ({"names": ["a", " "]}, "at least one"),
        ({"names": ["a"], "limit": 0}, "limit"),
        ({"names": ["a"], "num_fewshot": -1}, "num_fewshot"),
    ],
)
def test_settings_that_cannot_be_meant(fields, part):
    with pytest.raises(InputError, match=part):
        TasksWork(**fields)


def test_settings_of_json_lists_are_values():
    assert TasksWork(["a"], include=["b"]) == TasksWork(("a",), include=("b",))
    assert OFFLINE.is_dir()


LONG = """
task: long
custom_dataset: !function long.items
output_type: generate_until
test_split: test
doc_to_text: "{{text}}"
doc_to_target: "x"
"""
LONG_ITEMS = """
import random
import datasets
from transformers import AutoTokenizer

def items(max_seq_lengths, tokenizer, **about):
    words = AutoTokenizer.from_pretrained(tokenizer)("set babel acorn").input_ids
    rows = [{"text": f"{length} {len(words)} {random.random()}"} for length in max_seq_lengths]
    return {"test": datasets.Dataset.from_list(rows)}
"""


def test_metadata_and_the_tokenizer_reach_the_task(tmp_path):
    """As RULER's tasks get them; their draws from the global generator repeat, too."""
    (tmp_path / "long.yaml").write_text(LONG)
    (tmp_path / "long.py").write_text(LONG_ITEMS)
    settings = TasksWork(("long",), include=(str(tmp_path),), metadata={"max_seq_lengths": [300, 700]})
    with tokenizer_folder(open_source("ref:llama")) as folder:
        texts, again = ([doc["text"] for doc in load_tasks(settings, folder)["tasks"]["long"].eval_docs] for _ in "ab")
    assert [text.split()[:2] for text in texts] == [["300", "3"], ["700", "3"]]
    assert texts == again
    assert not folder.exists()
    with pytest.raises(InputError, match=r"task long cannot be loaded: .*tokenizer"):
        load_tasks(settings)


def test_items_repeat_if_an_import_draws(tmp_path):
    """`wonderwords` or a package behind it draws from the global generator when RULER's tasks import it."""
    (tmp_path / "drawn.yaml").write_text(LONG.replace("long", "drawn"))
    (tmp_path / "drawn.py").write_text(LONG_ITEMS.replace("import random\n", "import random, drawing\n"))
    (tmp_path / "drawing.py").write_text("import random\nrandom.random()\n")
    settings = TasksWork(("drawn",), include=(str(tmp_path),), metadata={"max_seq_lengths": [300]})
    with pytest.MonkeyPatch.context() as patch, tokenizer_folder(open_source("ref:llama")) as folder:
        patch.syspath_prepend(str(tmp_path))
        texts, again = ([doc["text"] for doc in load_tasks(settings, folder)["tasks"]["drawn"].eval_docs] for _ in "ab")
    assert texts == again


def test_metadata_names_another_tokenizer(tmp_path):
    (tmp_path / "long.yaml").write_text(LONG)
    (tmp_path / "long.py").write_text(LONG_ITEMS)
    metadata = {"max_seq_lengths": [300], "tokenizer": "no/such/folder/here"}
    settings = TasksWork(("long",), include=(str(tmp_path),), metadata=metadata)
    with pytest.raises(InputError, match="no/such/folder/here"):
        load_tasks(settings, tmp_path)


@pytest.mark.exhaustive("lm-eval lists all its tasks for 6 seconds")
def test_tasks_that_need_a_missing_package_name_it(monkeypatch):
    settings = TasksWork(("niah_single_1",), metadata={"max_seq_lengths": [512], "tokenizer": "t"})
    monkeypatch.setitem(sys.modules, "wonderwords", None)  # patch.dict would take back all imports of lm-eval
    with pytest.raises(InputError, match="wonderwords"):
        load_tasks(settings)
