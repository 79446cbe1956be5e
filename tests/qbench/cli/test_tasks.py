"""`qbench eval --tasks` as a user runs it."""

import json

import pytest

from qbench.cli.tasks import readable
from qbench.tasks.names import offline_names


def test_tasks_print_their_figures(qbench):
    outcome = qbench("eval", "ref:llama", "--tasks", "ref_sums,ref_brackets", "--limit", "8")
    assert outcome.status == 0 and outcome.err == ""
    assert "ref_sums      exact_match " in outcome.out and outcome.out.count(", 8 items)") == 2


@pytest.mark.parametrize(
    "entry, printed",
    [
        pytest.param({"error": 0.0, "interval": [0.5655, 1.0]}, "f 1.0000  (95 % 0.5655 to 1.0000, 5 items)", id="all"),
        pytest.param({"error": 0.25, "interval": None}, "f 1.0000 ± 0.2500  (5 items)", id="no share"),
        pytest.param({"error": 0.0, "interval": None}, "f 1.0000  (5 items)", id="equal items"),
        pytest.param({"error": None, "interval": None}, "f 1.0000  (5 items)", id="no error"),
    ],
)
def test_a_figure_is_never_reported_as_certain(entry, printed):
    assert readable({"metric": "f", "value": 1.0, "num_items": 5} | entry) == printed


def test_json_is_one_object(qbench):
    outcome = qbench("eval", "ref:llama", "--recipe", "q4_0", "--tasks", "ref_sums", "--limit", "3", "--json")
    result = json.loads(outcome.out)
    assert (result["recipe"], list(result["tasks"])) == ("q4_0", ["ref_sums"])
    assert len(result["tasks"]["ref_sums"]["correct"]) == 3


def test_list_names_the_tasks_without_network(qbench):
    assert qbench("eval", "ref:llama", "--tasks", "list").out.split() == offline_names()


def test_answers_are_kept(qbench, tmp_path):
    argv = ("eval", "ref:llama", "--tasks", "ref_sums", "--limit", "3", "--answers", tmp_path / "kept")
    first, second = qbench(*argv), qbench(*argv)
    assert first.out == second.out and [path.suffix for path in (tmp_path / "kept").iterdir()] == [".db"]


@pytest.mark.parametrize(
    "argv, parts",
    [
        pytest.param(["ref:llama", "--tasks", ""], ["at least one name"], id="no task"),
        pytest.param(["ref:llama", "--tasks", "ref_sums", "--include-path", "no/such"], ["no/such"], id="no folder"),
        pytest.param(["ref:llama", "--tasks", "ref_sums", "--windows", "2"], ["--tasks", "alone"], id="both"),
        pytest.param(["ref:llama", "--limit", "2"], ["--limit", "--tasks"], id="limit of nothing"),
        pytest.param(["ref:llama", "--num-fewshot", "0"], ["--num-fewshot", "--tasks"], id="examples of nothing"),
        pytest.param(["ref:llama", "--metadata", "{}"], ["--metadata", "--tasks"], id="metadata of nothing"),
        pytest.param(["ref:llama", "--tasks", "a", "--metadata", "{a: 1}"], ["--metadata", "'{a: 1}'"], id="no JSON"),
        pytest.param(["ref:llama", "--tasks", "a", "--metadata", "[1]"], ["--metadata", "object"], id="no object"),
        pytest.param(["ref:llama", "--answers", "x"], ["--answers", "--tasks"], id="answers to nothing"),
        pytest.param(["rand:tiny", "--tasks", "ref_sums"], ["rand:tiny", "tokenizer"], id="no tokenizer"),
    ],
)
def test_one_line(qbench, argv, parts):
    qbench("eval", *argv).fails_with(*parts)


def test_other_figures_of_a_task_follow_its_main_one():
    entry = {"metric": "acc", "value": 0.5, "interval": None, "error": 0.1, "num_items": 4}
    assert readable(entry) == "acc 0.5000 ± 0.1000  (4 items)"
    entry["metrics"] = {"acc,none": 0.5, "acc_norm,none": 0.25, "lost,none": None}
    assert readable(entry) == "acc 0.5000 ± 0.1000  (4 items), acc_norm 0.2500"
