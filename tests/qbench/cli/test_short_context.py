"""Commands with their default sizes on models with a short context; sizes that the user gives are still checked."""

import json

import pytest
from support.small_directory import write_small

import qbench as qb
from qbench.run.work import fitting_sizes
from qbench.throughput.workload import fitting_lengths


@pytest.fixture(scope="module", params=[16, 256])
def short(request, tmp_path_factory):
    """(context, a directory of a random model with it)"""
    folder = tmp_path_factory.mktemp("short") / "model"
    return request.param, str(write_small("llama", folder, max_position_embeddings=request.param))


def test_defaults_fit_the_context(qbench, short):
    context, model = short
    row = json.loads(qbench("engine", model, "--requests", "3", "--rounds", "1", "--json").out)
    prompt, new = fitting_lengths(context, 0, None, None)
    assert row["workload"] == f"3 x {prompt[0]}-{prompt[1]}+{new[0]}-{new[1]}" and prompt[1] + new[1] == context
    row = json.loads(qbench("bench", model, "-r", "1", "--json").out)
    assert (row["pp"], row["tg"]) == (context, min(context, 128))
    assert json.loads(qbench("breakdown", model, "--json").out)["steps"] == min(128, context - 5)
    row = json.loads(qbench("generate", model, "--prompt", "a b c", "--json").out)
    assert len(row["tokens"]) <= min(128, context - 3) and row["stop_reason"] == "length"


def test_python_functions_fit_the_context(short):
    context, model = short
    row = qb.bench(model, repetitions=1).to_json()
    assert (row["pp"], row["tg"]) == (context, min(context, 128))
    assert qb.load(model).generate("a b c")


def test_given_sizes_are_checked(qbench, short):
    context, model = short
    over = str(context + 1)
    qbench("engine", model, "--prompt", f"1,{context}", "--new", "1,1").fails_with(f"context holds {context}")
    qbench("engine", model, "--document", over).fails_with(f"context holds {context}")
    for words in (("-p", over), ("-n", over), ("-d", over)):
        qbench("bench", model, "-r", "1", *words).fails_with(f"context holds {context}")
    qbench("breakdown", model, "-n", over).fails_with(f"context holds {context}")
    qbench("generate", model, "--prompt", "a", "-n", over).fails_with(f"context of {context}")


def test_default_lengths_of_requests():
    assert fitting_lengths(768, 0, None, None) == fitting_lengths(9999, 0, None, None) == ((32, 256), (8, 512))
    assert fitting_lengths(96, 0, None, None) == ((32, 32), (8, 64))
    assert fitting_lengths(96, 90, None, None) == ((2, 2), (4, 4))
    assert fitting_lengths(96, 0, (4, 10), None) == ((4, 10), (8, 86))
    assert fitting_lengths(96, 0, None, (1, 90)) == ((6, 6), (1, 90))


def test_default_sizes_of_speeds():
    assert fitting_sizes(None, None, 0, 4096) == (512, 128)
    assert fitting_sizes(None, None, 156, 256) == (100, 100)
    assert fitting_sizes(0, 700, 0, 256) == (0, 700)
