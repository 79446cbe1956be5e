"""Names of tasks that do not exist are refused before a model is opened; all that lm-eval knows are accepted."""

import pytest

from qbench.run.work import TasksWork
from qbench.tasks import evaluate
from qbench.tasks.names import check_task_names, lm_eval_tasks, task_texts, words_of
from quant.errors import InputError


def test_an_unknown_task_is_refused_before_the_model_is_opened(monkeypatch):
    def no_model(*_):
        raise AssertionError("the model is opened first")

    monkeypatch.setattr(evaluate, "open_subject", no_model)
    with pytest.raises(InputError, match=r"no task 'hellaswagg'; did you mean .*'hellaswag'"):
        evaluate.evaluate_tasks("ref:llama", TasksWork(("ref_sums", "hellaswagg")))
    with pytest.raises(InputError, match="no/such/folder"):
        evaluate.evaluate_tasks("ref:llama", TasksWork(("ref_sums",), include=("no/such/folder",)))


def test_tasks_groups_tags_and_patterns_are_accepted():
    check_task_names(TasksWork(("hellaswag", "paloma", "truthfulqa-multi", "mmlu_*", "ref_su*", "acp_bench_hard")))


def test_names_in_given_folders_are_left_to_lm_eval(tmp_path):
    check_task_names(TasksWork(("made_by_a_file",), include=(str(tmp_path),)))


@pytest.mark.exhaustive  # lm-eval's index takes 15 s
def test_no_name_of_lm_evals_index_is_missing():
    from lm_eval.tasks import TaskManager

    words = {word for text in task_texts(lm_eval_tasks()) for word in words_of(text)}
    assert set(TaskManager().all_tasks) <= words
