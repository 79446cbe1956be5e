"""Where a prompt is cut when a policy compresses its context: before the question is seen, after it, or before another.

visible   context and question pass at once and are compressed; then comes the beginning of the answer
hidden    the context passes and is compressed; then come the question and the beginning of the answer
second    the context passes and is compressed, another question is answered, then comes the question

The tokens of `visible` and `hidden` are those of the plain prompt. An item gives its parts apart: `question`, the
beginning of the answer as `answer_prefix`, and for `second` `first_question`, whose answer is part of it. RULER's items
have `gen_prefix`, and the question is the last line of `input`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from qbench.run.work import SECOND, VISIBLE
from quant.errors import InputError


@dataclass(frozen=True, slots=True)
class CutPrompt:
    """text: of the whole prompt; ends: characters after which a forward pass ends, ascending, the last one left out"""

    text: str
    ends: tuple[int, ...]


def cut_prompt(prompt: str, item: Mapping[str, Any], question: str, task: str) -> CutPrompt:
    """The prompt, as lm-eval made it of the item, with its cuts.

    question   one of settings.QUESTIONS
    raises     InputError for an item that does not give the parts apart
    """
    asked, prefix = _parts_of(item)
    answer_at = prompt.rfind(prefix) if prefix else len(prompt)
    start = prompt.rfind(asked, 0, answer_at) if asked else -1
    if start <= 0:
        raise InputError(
            f"task {task} does not give context and question apart, so question {question} cannot be measured; "
            "take one whose items have `question`, as ref_questions_8k, or RULER's"
        )
    if question == VISIBLE:
        return CutPrompt(prompt, (answer_at,))
    if question != SECOND:
        return CutPrompt(prompt, (start,))
    first = item.get("first_question")
    if not isinstance(first, str) or not first:
        raise InputError(
            f"task {task} has one question per context, so question {SECOND} cannot be measured; leave it out"
        )
    return CutPrompt(prompt[:start] + first + prompt[start:], (start, start + len(first)))


def _parts_of(item: Mapping[str, Any]) -> tuple[str, str]:
    """The question, or "" if it is not known; the beginning of the answer, or "" for an item without one."""
    if isinstance(item.get("question"), str):
        return item["question"], item.get("answer_prefix") or ""
    if item.get("gen_prefix") and isinstance(item.get("input"), str):  # RULER
        return item["input"].rstrip().rpartition("\n")[2], item["gen_prefix"]
    return "", ""


def token_cuts(tokens: Sequence[int], heads: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Numbers of tokens after which a forward pass ends; at least one token follows the last one.

    heads   tokens of the text up to each cut, of which the last may be merged with the text behind it
    """
    cuts = []
    for head in heads:
        common = next((i for i, pair in enumerate(zip(tokens, head, strict=False)) if pair[0] != pair[1]), len(head))
        cuts.append(min(common, len(tokens) - 1))
    return tuple(sorted({cut for cut in cuts if cut > 0}))


def parts_between(num_tokens: int, cuts: Sequence[int]) -> list[slice]:
    """[0, cut), [cut, cut), ..., [cut, num_tokens)"""
    edges = [0, *cuts, num_tokens]
    return [slice(*pair) for pair in pairwise(edges)]
