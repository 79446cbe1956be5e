"""`run_tasks` on real tasks: figures and items equal those of lm-eval's own `hf` model on the same weights."""

import json

import pytest
from support.close import assert_close
from support.data import STORIES260K, TASK_FILES, needs_stories, needs_task_files
from support.hf_task_model import hf_task_model
from support.measuring import tasks_of

from qbench.run.cache_spec import QUALITY_CHUNK
from qbench.run.options import RunOptions
from qbench.run.work import TasksWork
from qbench.runtime import load_model
from qbench.sources import open_source
from qbench.sweeps.job import MeasureJob, Work
from qbench.sweeps.jobs import measure
from qbench.tasks import run_tasks
from qbench.tasks.catalogue import load_tasks
from qbench.tasks.quiet import quiet

# task -> items: every kind of request, in numbers that take moments
LIMITS = {
    "local_blimp": 25,
    "local_copa": 20,
    "local_arc_easy": 6,
    "local_arc_challenge": 6,
    "local_piqa": 12,
    "local_hellaswag": 5,
    "local_lambada_openai": 12,
    "local_gsm8k": 2,
    "local_wikitext": 1,
}


@pytest.fixture(scope="module")
def stories():
    source = open_source(str(STORIES260K))
    return load_model(source), source


@pytest.fixture(scope="module")
def oracle():
    return hf_task_model(STORIES260K)


# Both add float32 products of 64 through 5 layers; a token's log-probability takes it from two logits.
TOKEN_ERROR = 2 * 2.0**-23 * 64 * 5
WORD_TOKENS = 16  # at most; the vocabulary is of 512 tokens


@needs_stories
@needs_task_files
@pytest.mark.parametrize("task", LIMITS)
def test_equals_hf_item_by_item(task, stories, oracle):
    from lm_eval.api.metrics import mean_stderr
    from lm_eval.evaluator import evaluate

    settings = TasksWork((task,), limit=LIMITS[task], include=(str(TASK_FILES),))
    entry = run_tasks(*stories, settings)[task].to_json()
    with quiet():
        theirs = evaluate(oracle, load_tasks(settings), limit=settings.limit, bootstrap_iters=0)
    items = [sample[entry["metric"]] for sample in theirs["samples"][task]]
    if "correct" in entry:
        assert entry["correct"] == "".join(str(int(item)) for item in items)
        assert_close(entry["error"], mean_stderr(items), rtol=2.0**-50)
    else:
        values, weights = zip(*items, strict=True)
        assert_close(entry["values"], values, atol=TOKEN_ERROR * WORD_TOKENS * sum(weights))
        assert entry["weights"] == list(weights)
    assert entry["num_items"] == LIMITS[task]
    figures = {name: value for name, value in theirs["results"][task].items() if name in entry["metrics"]}
    assert figures.keys() == entry["metrics"].keys() and f"{entry['metric']},{entry['protocol']['filter']}" in figures
    for name, value in figures.items():
        if "acc" in name or "match" in name:
            assert entry["metrics"][name] == value
        else:  # a perplexity of words, or bits of bytes
            assert_close(entry["metrics"][name], value, rtol=TOKEN_ERROR * WORD_TOKENS)
    json.dumps(entry, allow_nan=False)


@pytest.fixture(scope="module")
def sums():
    """The first sums, by the embedded model as it is."""
    return tasks_of("ref:llama", TasksWork(("ref_sums",), limit=6), threads=1)


def test_an_entry_names_its_items(sums):
    entry = sums["tasks"]["ref_sums"]
    assert (entry["metric"], entry["num_items"], len(entry["correct"])) == ("exact_match", 6, 6)
    fewer = tasks_of("ref:llama", TasksWork(("ref_sums",), limit=5), recipe="q2_k", threads=1)
    other = fewer["tasks"]["ref_sums"]
    assert other["items_sha256"] != entry["items_sha256"] and other["protocol_hash"] != entry["protocol_hash"]
    same = tasks_of("ref:llama", TasksWork(("ref_sums",), limit=6), recipe="q2_k", threads=1)
    assert same["tasks"]["ref_sums"]["protocol"] == entry["protocol"], "another model, the same items"


def test_a_stopped_run_goes_on_with_its_answers(sums, tmp_path, monkeypatch):
    from qbench.tasks import model as task_model

    settings = TasksWork(("ref_sums",), limit=6)
    first = tasks_of("ref:llama", settings, threads=1, answers=tmp_path / "answers")
    assert first["tasks"] == sums["tasks"]
    monkeypatch.setattr(task_model, "generate_batch", lambda *_: pytest.fail("asked again"))
    second = tasks_of("ref:llama", settings, threads=1, answers=tmp_path / "answers")
    assert second["tasks"] == sums["tasks"]
    for other in ({"recipe": "q4_0"}, {"policy": "window:64"}, {"compute": "exact"}):  # has answers of its own
        with pytest.raises(pytest.fail.Exception):
            tasks_of("ref:llama", settings, threads=1, answers=tmp_path / "answers", **other)


@pytest.mark.parametrize("budget, right", [(128, 1.0), (32, 0.0)], ids=["holds the value", "evicted the value"])
def test_a_policy_evicts_within_the_prompt(budget, right):
    """The first items of ref_recall ask for a value 64 tokens back; the budget decides whether the cache holds it."""
    how = {"policy": f"recent:budget={budget}", "prefill_chunk": 32}
    result = tasks_of("ref:llama", TasksWork(("ref_recall",), limit=3), **how, threads=1)
    assert result["tasks"]["ref_recall"]["value"] == right
    assert result | how == result, "the record names both"


def test_a_policy_evicts_while_text_is_generated(sums):
    """A sum and its working are about 40 tokens; the budget is for 400 tokens, or for 4 of the working."""
    roomy, tight = (
        tasks_of("ref:llama", TasksWork(("ref_sums",), limit=6), policy=f"recent:budget={budget}", threads=1)
        for budget in (400, 4)
    )
    assert roomy["tasks"] == sums["tasks"]
    assert tight["tasks"]["ref_sums"]["correct"] == "000000"
    assert (tight["policy"], tight["prefill_chunk"]) == ("recent:budget=4", QUALITY_CHUNK)
    assert "policy" not in sums, "the full cache is not named"


# Every container and arithmetic, keys and values of each width. A model that cannot distinguish brackets is right in
# 0.25.
KINDS = (
    "q8_0",
    "q4_k_m",
    "rtn-w8a8",
    "rtn-w4g128",
    "llm-int8",
    "bf16+kv-f16",
    "bf16+kv-fp8",
    "q8_0+kv-int8",
    "bf16+kv-int4-kc",
)


# A kind of weights and one of the cache in every run; the others' logits have tests of their own.
IN_EVERY_RUN = ("q4_k_m", "rtn-w8a8", "q8_0+kv-int8", "bf16+kv-fp8")
OTHERS = pytest.mark.exhaustive("a second for each")


@pytest.mark.parametrize("recipe", [pytest.param(one, marks=() if one in IN_EVERY_RUN else OTHERS) for one in KINDS])
def test_any_artifact_and_cache_keeps_the_skills_of_the_model(recipe):
    entry = tasks_of("ref:llama", TasksWork(("ref_brackets",), limit=40), recipe=recipe, threads=1)["tasks"]
    assert entry["ref_brackets"]["value"] >= 0.9


def test_a_case_of_a_sweep_measures_tasks(sums):
    job = MeasureJob("ref:llama", "ref:llama", RunOptions(threads=1), "", Work(tasks=TasksWork(("ref_sums",), limit=6)))
    metrics = measure(job, lambda *_: None).to_json()
    assert metrics["tasks"] == sums["tasks"] and metrics["model"] == "ref:llama"


def test_a_group_is_an_entry_next_to_its_tasks(tmp_path):
    (tmp_path / "pair.yaml").write_text(
        "group: pair\ntask: [ref_minimal_pairs, ref_brackets]\naggregate_metric_list: [{metric: acc}]\n"
    )
    settings = TasksWork(("pair",), limit=4, include=(str(tmp_path),))
    tasks = tasks_of("ref:llama", settings, threads=1)["tasks"]
    assert list(tasks) == ["pair", "ref_minimal_pairs", "ref_brackets"]
    assert tasks["pair"]["correct"] == tasks["ref_minimal_pairs"]["correct"] + tasks["ref_brackets"]["correct"]
