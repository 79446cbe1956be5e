"""Prompts cut at their question: the parts of an item, and policies against loops of forward passes by hand."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from support.memory_source import MemorySource

from qbench.run.cache_spec import FULL
from qbench.run.options import RunOptions
from qbench.run.work import HIDDEN, QUESTIONS, SECOND, VISIBLE, TasksWork
from qbench.runtime import Sampling, Tokenizer, load_model
from qbench.sources import open_source
from qbench.tasks.evaluate import evaluate_tasks
from qbench.tasks.generation import Prompt, generate_batch, plan_batches
from qbench.tasks.questions import CutPrompt, cut_prompt, token_cuts
from qbench.tasks.reference_items import questions
from qbench.tasks.scoring import Answer, Request, group_requests, run_forward, score
from quant.errors import InputError

ITEM = {"question": "What? ", "answer_prefix": "It is", "first_question": "Who? I. "}
PROMPT = "What? A text. What? It is"
RULER = {"input": "Memorize this.\nA text.\nWhat is it?", "gen_prefix": "It is"}


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        (VISIBLE, ["What? A text. What? ", "It is"]),
        (HIDDEN, ["What? A text. ", "What? It is"]),
        (SECOND, ["What? A text. ", "Who? I. ", "What? It is"]),
    ],
)
def test_parts_of_a_prompt(question, parts):
    cut = cut_prompt(PROMPT, ITEM, question, "t")
    edges = [0, *cut.ends, len(cut.text)]
    assert [cut.text[a:b] for a, b in pairwise(edges)] == parts


def test_rulers_question_is_the_last_line_of_its_input():
    prompt = f"{RULER['input']} {RULER['gen_prefix']}"
    assert cut_prompt(prompt, RULER, HIDDEN, "niah") == CutPrompt(prompt, (prompt.index("What"),))
    assert cut_prompt(prompt, RULER, VISIBLE, "niah") == CutPrompt(prompt, (prompt.index("It is"),))
    with pytest.raises(InputError, match="task niah has one question per context, so question second"):
        cut_prompt(prompt, RULER, SECOND, "niah")


@pytest.mark.parametrize("item", [{}, {"question": "Why?"}, {"input": "A"}])
def test_an_item_without_its_parts_is_refused(item):
    with pytest.raises(InputError, match="task t does not give context and question apart, so question hidden"):
        cut_prompt(PROMPT, item, HIDDEN, "t")


def test_cuts_in_tokens_leave_one_token_and_stop_at_merged_tokens():
    assert token_cuts([1, 2, 3, 4], [[1, 2], [1, 2, 3, 4]]) == (2, 3)
    assert token_cuts([1, 2, 9], [[1, 2, 3]]) == (2,)
    assert token_cuts([9], [[]]) == ()


TOKENS = tuple(torch.randint(0, 320, (60,), generator=torch.Generator().manual_seed(0)).tolist())
CONTEXT, ANSWER = 48, (5, 7, 9)


@pytest.mark.parametrize("policy", ["tova:16", "snapkv:budget=16,window=4", "keydiff:budget=16", FULL])
@pytest.mark.parametrize("cuts", [(CONTEXT,), (CONTEXT, 54)], ids=["hidden", "second"])
def test_a_policy_compresses_where_a_loop_by_hand_does(policy, cuts):
    model = load_model(MemorySource(), RunOptions(policy=policy))
    (work,) = group_requests([Request(TOKENS, ANSWER, cuts)], 320)
    ((request, got),) = run_forward(model, work)
    cache = model.new_cache(1, 80)
    edges = [0, *cuts, len(TOKENS)]
    for start, end in pairwise(edges):
        first = model(torch.tensor([TOKENS[start:end]]), cache, last_only=True)
        if policy != FULL:
            assert cache.num_held.max() <= 16 and cache.seq_len == end
    rest = model(torch.tensor([ANSWER[:-1]]), cache)
    nll, likeliest = score(torch.cat([first, rest], dim=1)[0], torch.tensor(ANSWER))
    assert got == Answer(-float(nll.sum()), bool(likeliest.all()))
    assert request.cuts == cuts
    rounding = 2.0**-24 * len(TOKENS) * abs(got.loglikelihood)  # of sums over so many keys
    plain = next(run_forward(model, group_requests([Request(TOKENS, ANSWER)], 320)[0]))[1]
    assert (got.loglikelihood == pytest.approx(plain.loglikelihood, abs=rounding)) == (policy == FULL)


def test_requests_of_other_cuts_pass_apart():
    asked = [Request(TOKENS, (token,), cuts) for token in (1, 2) for cuts in ((), (CONTEXT,))]
    forwards = group_requests(asked, 320)
    assert sorted(forward.cuts for forward in forwards) == [(), (CONTEXT,)]
    assert {request for forward in forwards for request in forward.requests} == set(asked)


def test_the_full_cache_answers_as_a_plain_prompt_of_the_same_tokens():
    source = open_source("ref:llama")
    text, model = Tokenizer(source.tokenizer), load_model(source)
    for item in questions(count=1, context=200, distances=[64, 160])["test"]:
        plain = item["context"] + item["question"] + item["answer_prefix"]
        for question in QUESTIONS:
            cut = cut_prompt(plain, item, question, "t")
            tokens = text.encode(cut.text)
            cuts = token_cuts(tokens, [text.encode(cut.text[:end]) for end in cut.ends])
            assert len(cuts) == (2 if question == SECOND else 1)
            prompt = Prompt(tuple(tokens), (), 6, Sampling(0.0), cuts)
            answers = [generate_batch(model, text, [one], frozenset()) for one in (prompt, replace(prompt, cuts=()))]
            assert answers[0] == answers[1] and answers[0] != [""]
    assert plan_batches([prompt, replace(prompt, cuts=())]) in ([[0], [1]], [[1], [0]])


def test_the_question_is_part_of_the_protocol_and_changes_the_kept_tokens(tmp_path):
    lines = ["task: short", "custom_dataset: !function qbench.tasks.reference_items.questions"]
    lines += ["dataset_kwargs: {count: 3, context: 400, distances: [300]}", "output_type: multiple_choice"]
    lines += ["test_split: test", "num_fewshot: 0", 'doc_to_text: "{{context}}{{question}}{{answer_prefix}}"']
    lines += ['doc_to_choice: "{{choices}}"', 'doc_to_target: "{{answer}}"', "metric_list: [{metric: acc}]"]
    (tmp_path / "short.yaml").write_text("\n".join(lines))
    found = {}
    for question in (None, VISIBLE, HIDDEN):
        settings = TasksWork(("short",), include=(str(tmp_path),), question=question)
        result = evaluate_tasks("ref:llama", settings, RunOptions(policy="snapkv:budget=40,window=8", threads=1))
        found[question] = result.tasks["short"]
        assert found[question].protocol.get("question") == question
    assert len({entry.protocol_hash for entry in found.values()}) == 3
    assert found[VISIBLE].value == 1.0 > found[HIDDEN].value


def test_impossible_measurements_are_refused_before_a_model_is_loaded():
    settings = TasksWork(("ref_questions_8k",), question=VISIBLE)
    with pytest.raises(InputError, match=r"question visible compresses a whole prompt at once.*leave the chunk out"):
        evaluate_tasks("ref:none", settings, RunOptions(prefill_chunk=64))
    with pytest.raises(InputError, match=r"unknown question 'hiden'; known: visible.*did you mean 'hidden'"):
        TasksWork(("ref_recall",), question="hiden")
    with pytest.raises(InputError, match="task ref_recall does not give context and question apart"):
        evaluate_tasks("ref:llama", TasksWork(("ref_recall",), limit=1, question=HIDDEN), RunOptions(threads=1))
