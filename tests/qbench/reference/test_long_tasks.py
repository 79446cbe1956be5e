"""The documents of long contexts: their answers follow from their text, and the marked tokens are the answers."""

from random import Random

import numpy as np
import pytest
from support.close import assert_close

from qbench.reference import curriculum
from qbench.reference.corpus import MIX, documents
from qbench.reference.curriculum import ANSWER_WEIGHT, CHANCE_WEIGHT
from qbench.reference.lexicon import is_heldout
from qbench.reference.long_tasks import MAKERS, MEASURED, answers, loss_weights
from qbench.reference.tasks import LIST_WORDS, MAX_HOPS, MOST, aliases, counting, echoes, two_word_recall


def lines_of(maker, heldout=False, num_tokens=1500, seeds=6):
    for seed in range(seeds):
        yield maker(Random(seed), heldout, num_tokens).splitlines()


def solve(lines):
    """(line, right answer) of every `get` and `ask` line, by reading the text from its beginning."""
    memory, said = {}, {}
    for line in lines:
        word, *rest = line.split()
        if word == "set":
            memory[" ".join(rest[:-1])] = rest[-1]
        elif word == "say":
            for one in rest:
                said[one] = said.get(one, 0) + 1
        elif word == "get":
            value = " ".join(rest[:-1])
            while value in memory:
                value = memory[value]
            yield line, value
        elif word == "ask":
            yield line, str(said[rest[0].partition("=")[0]])


@pytest.mark.parametrize("heldout", [False, True], ids=["training stream", "held out"])
@pytest.mark.parametrize("task", MEASURED)
def test_answers_follow_from_the_text(task, heldout):
    solved = [pair for lines in lines_of(MEASURED[task], heldout) for pair in solve(lines)]
    assert len(solved) >= 12
    assert all(line.replace("=", " ").split()[-1] == value for line, value in solved)


@pytest.mark.parametrize("task", MEASURED)
def test_nothing_is_asked_twice(task):
    for lines in lines_of(MEASURED[task]):
        questions = [line.replace("=", " ").rsplit(" ", 1)[0] for line in lines if line.startswith(("get", "ask"))]
        assert len(questions) == len(set(questions))


@pytest.mark.parametrize("heldout", [False, True], ids=["training stream", "held out"])
def test_items_are_on_their_side(heldout):
    keys = [line.split()[1:] for lines in lines_of(two_word_recall, heldout) for line in lines if line[:3] == "set"]
    assert {is_heldout("two words", f"{colour} {name}", value) for colour, name, value in keys} == {heldout}
    asked = [line[4:].split("=") for lines in lines_of(counting, heldout) for line in lines if line[:3] == "ask"]
    assert {is_heldout("count", word, int(number)) for word, number in asked} == {heldout}
    assert all(1 <= int(number) <= MOST for _, number in asked)


def test_two_word_keys_share_their_words():
    (lines,) = lines_of(two_word_recall, num_tokens=4000, seeds=1)
    names = [line.split()[2] for line in lines if line.startswith("set")]
    assert len(names) > 1.5 * len(set(names))


@pytest.mark.parametrize("asked_hops", range(MAX_HOPS + 1))
def test_aliases_ask_for_the_hops_wanted(asked_hops):
    asked = 0
    for lines in lines_of(lambda rng, heldout, num_tokens: aliases(rng, heldout, num_tokens, asked_hops)):
        memory = dict(line.split()[1:] for line in lines if line.startswith("set"))
        for name in (line.split()[1] for line in lines if line.startswith("get")):
            hops = -1
            while name in memory:
                name, hops = memory[name], hops + 1
            assert hops == asked_hops
            asked += 1
    assert asked


def test_echoes_repeat_their_lists():
    for lines in lines_of(echoes):
        said, again = ([line.split()[1:] for line in lines if line.startswith(word)] for word in ("say", "again"))
        assert sorted(said) == sorted(again) and all(len(words) == LIST_WORDS for words in said)


@pytest.mark.parametrize("num_tokens", [512, 8192])
@pytest.mark.parametrize("task", MAKERS)
def test_documents_have_the_length_asked_for(task, num_tokens, tokenizer):
    sizes = [len(tokenizer.encode(MAKERS[task](Random(seed), False, num_tokens)).ids) for seed in range(4)]
    assert all(0.8 * num_tokens < size < 1.1 * num_tokens for size in sizes), sizes


def test_marks_by_hand(tokenizer):
    text = "set red babel acorn\nget red babel acorn\nset babel ash\nget babel ash\nask ash=3\n"
    tokens = np.array(tokenizer.encode(text).ids)
    one, low, high = 1.0, CHANCE_WEIGHT, ANSWER_WEIGHT
    expected = [one, low, low, low, one, one, low, low, high, one]
    expected += [one, low, low, one, one, low, high, one, one, low, one, high, one]
    assert_close(loss_weights(tokens, tokenizer), np.float32(expected))
    assert answers(tokens, tokenizer).nonzero()[0].tolist() == [8, 16, 21]


def test_short_documents_weigh_as_before(tokenizer):
    stream = documents(5, MIX | {"echo": 0.2})
    tokens = np.array(tokenizer.encode("".join(next(stream) for _ in range(40))).ids)
    assert_close(loss_weights(tokens, tokenizer), curriculum.loss_weights(tokens, tokenizer))
    assert (answers(tokens, tokenizer) == curriculum.answers(tokens, tokenizer)).all()
