"""Policy oracle on the command line: a yardstick for texts, refused when tokens are generated."""

import json

import pytest


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(("bench", "ref:llama", "-p", "8", "-n", "1", "-r", "1"), id="bench"),
        pytest.param(("generate", "ref:llama", "-n", "2", "--prompt", "set"), id="generate"),
        pytest.param(("serve", "ref:llama", "--port", "0"), id="serve"),
        pytest.param(("engine", "ref:llama"), id="engine"),
        pytest.param(("eval", "ref:llama", "--tasks", "ref_sums", "--limit", "1"), id="tasks"),
    ],
)
def test_commands_that_generate_refuse_it_in_one_line(qbench, argv):
    qbench(*argv, "--policy", "oracle:16").fails_with("oracle", "qbench eval")


def test_eval_of_a_text_names_it_in_the_record(qbench):
    argv = ("eval", "ref:llama", "--windows", "1", "--policy", "oracle:64", "--reference", "ref:llama", "--json")
    result = json.loads(qbench(*argv).out)
    assert result["policy"] == "oracle:64" and 0 < result["kld"]["mean"] < 1
