import json
from unittest import mock

import pytest
import torch

from gpu_kernels import tuned
from gpu_kernels.launch import INTERPRETED_AS, Launch
from gpu_kernels.proof.problems import all_ops, problems_of

KEPT = sorted(tuned.CONFIGS.glob("*.json"))


@pytest.fixture
def some_gpu(monkeypatch, tmp_path):
    monkeypatch.setattr(tuned, "CONFIGS", tmp_path)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Some GPU/2")
    tuned._choices.cache_clear()
    yield tmp_path / "Some_GPU_2.json"
    tuned._choices.cache_clear()


@pytest.mark.parametrize("kept, takes", [("b", "b"), ("gone", "a")])
def test_the_kept_choice_of_the_gpu_or_the_first_is_taken(some_gpu, kept, takes):
    some_gpu.write_text(json.dumps({"chosen": {"op": {"M<=16": kept}}}))
    cuda = torch.device("cuda")
    assert tuned.chosen("op", "M<=16", ["a", "b"], cuda) == takes
    assert tuned.chosen("op", "any M", ["a", "b"], cuda) == "a"
    assert tuned.chosen("op", "M<=16", ["a", "b"], torch.device("cpu")) == "a"


def test_takes_the_first_on_a_gpu_that_is_not_known(some_gpu):
    assert tuned.chosen("op", "M<=16", ["a", "b"], torch.device("cuda")) == "a"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_every_kept_choice_is_a_candidate(path):
    """A choice that is no candidate any more would be passed over without a word."""
    for op, rows in json.loads(path.read_text())["chosen"].items():
        assert op in all_ops()
        known = {problem.row(90): set(problem.variants(90)) for problem in problems_of(op)}
        assert all(name in known[row] for row, name in rows.items())


class Asked(dict):
    """No choices; remembers which op and row were looked up."""

    def __init__(self):
        self.pairs = []

    def get(self, op, _):
        rows = mock.Mock()
        rows.get = lambda row: self.pairs.append((op, row))
        return rows


def looked_up(op):
    """[(label, its row, the row that its call looks up)] of interpreted problems that have candidates; nothing is
    launched.
    """
    found = []
    for problem in problems_of(op):
        if problem.is_interpreted and problem.variants(INTERPRETED_AS):
            asked = Asked()
            with (
                mock.patch.object(Launch, "run"),
                mock.patch.object(tuned, "_choices", lambda gpu, asked=asked: asked),
            ):
                problem.op.kernel.call(**problem.operands("cpu"))
            found.append((problem.label, problem.row(INTERPRETED_AS), asked.pairs))
    return found


@pytest.mark.parametrize("op", all_ops())
def test_calls_look_up_the_row_that_is_chosen_for(interpreter, op):
    """A choice under another name than the call's would be kept and never used."""
    for label, row, pairs in interpreter(looked_up, op):
        assert {pair for pair in pairs if pair[0] == op} == {(op, row)}, label
        assert {other for other, _ in pairs} <= {op, "key_mass"}, label  # the kernel that attention with mass may run
