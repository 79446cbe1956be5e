import re
from itertools import islice
from random import Random

import pytest

from qbench.reference.corpus import EOS, SKILLS, documents, heldout_text
from qbench.reference.lexicon import KEYS, TOPICS, VALUES, is_heldout
from qbench.reference.prose import minimal_pair, plural, third_person
from qbench.reference.tasks import PAIRS, problem, working


def take(skill: str, count: int, seed: int = 0, heldout: bool = False) -> list[str]:
    return list(islice(documents(seed, {skill: 1.0}, heldout), count))


@pytest.mark.parametrize("skill", SKILLS)
def test_a_seed_gives_one_text(skill):
    assert take(skill, 5, seed=3) == take(skill, 5, seed=3)
    assert take(skill, 5, seed=3) != take(skill, 5, seed=4)


@pytest.mark.parametrize("skill", [None, *SKILLS], ids=lambda skill: skill or "mixed")
def test_heldout_text_is_the_same_at_every_call(skill):
    text = heldout_text(skill, 20_000)
    assert text == heldout_text(skill, 20_000)
    assert text.startswith(EOS) and 20_000 <= len(text) < 30_000


def test_text_does_not_change_between_versions():
    """A digest of the corpus: trained weights and published figures rest on this very text."""
    from hashlib import sha256

    digest = sha256("".join(islice(documents(0), 200)).encode() + heldout_text(None, 50_000).encode()).hexdigest()
    assert digest.startswith(CORPUS_DIGEST), f"the corpus changed: {digest}; retrain, and measure anew"


CORPUS_DIGEST = "a527e6ab"


def items(skill: str, text: str) -> set[tuple]:
    """The items that are divided into trained and held out, read back from a document."""
    if skill == "recall":
        return {("recall", *line.split()[1:]) for line in text.splitlines() if line.startswith("set ")}
    if skill == "arithmetic":
        sums = re.findall(r"^(\d+)\+(\d+):", text, flags=re.MULTILINE)
        return {("sum", int(a), int(b)) for a, b in sums if max(int(a), int(b)) > 9}
    if skill == "nested":
        return {("brackets", line.removeprefix("nest ")) for line in text.splitlines()}
    return attractions(text)


def attractions(text: str) -> set[tuple]:
    """(subject, noun between it and its verb) of every agreement sentence."""
    roles = {form: role for topic in TOPICS.values() for role in topic["roles"] for form in (role, plural(role))}
    nouns = roles | {form: thing for t in TOPICS.values() for thing in t["things"] for form in (thing, plural(thing))}
    found = set()
    for sentence in re.findall(r"The (?:\w+) (?:near|behind|beside|with|that|who) [^.]*\.", text):
        words = sentence.rstrip(".").split()
        inner = next(word for word in words[2:] if word in nouns)
        found.add(("prose", roles[words[1]], nouns[inner]))
    return found


@pytest.mark.parametrize("skill", SKILLS)
@pytest.mark.parametrize("heldout", [False, True], ids=["training stream", "held out"])
def test_items_are_on_their_side(skill, heldout):
    found = set().union(*(items(skill, text) for text in take(skill, 60, heldout=heldout)))
    assert len(found) > 100 if not heldout else len(found) > 20
    assert {is_heldout(*item) for item in found} == {heldout}


def test_sums_are_true_in_every_step():
    for text in take("arithmetic", 50):
        for line in text.splitlines():
            problem_text, steps = line.split(":")
            a, b = map(int, problem_text.split("+"))
            *columns, result = steps.split(",")
            assert int(result) == a + b
            for column in columns:
                left, right = column.split("=")
                assert sum(map(int, left.split("+"))) == int(right)


@pytest.mark.parametrize(
    "a, b, expected",
    [(4, 6, "4+6=10,10"), (27, 35, "7+5=12,2+3+1=6,62"), (99, 99, "9+9=18,9+9+1=19,198"), (37, 2, "7+2=9,3+0=3,39")],
)
def test_working_by_hand(a, b, expected):
    assert working(a, b) == expected


def test_heldout_problems_have_two_digits_somewhere():
    rng = Random(0)
    assert all(max(problem(rng, heldout=True)) > 9 for _ in range(100))


def test_brackets_balance():
    for text in take("nested", 50):
        for line in text.splitlines():
            stack = []
            for bracket in line.removeprefix("nest ").split(" "):
                if bracket in PAIRS:
                    stack.append(PAIRS[bracket])
                else:
                    assert stack.pop() == bracket
            assert not stack


def test_recall_answers_match_the_given_facts():
    for text in take("recall", 50) + take("recall", 50, heldout=True):
        memory = {}
        for line in text.splitlines():
            word, *pair = line.split()
            if word == "set":
                assert pair[0] not in memory, "a key is set once"
                memory[pair[0]] = pair[1]
            elif word == "get":
                assert memory[pair[0]] == pair[1]


def test_early_facts_hold_later():
    text = take("prose", 1)[0]
    colours = dict(re.findall(r"(\w+) has a (\w+) \w+\.", text))
    later = re.findall(r"The \w+ of (\w+) is (\w+)\.", text)
    assert later
    assert all(colours[name] == colour for name, colour in later)


def test_minimal_pairs_differ_in_the_number_of_one_verb():
    rng = Random(0)
    verbs = {verb for topic in TOPICS.values() for verb in topic["verbs"]}
    for _ in range(200):
        pair = minimal_pair(rng)
        good, bad = pair.good.split(), pair.bad.split()
        (different,) = [i for i, (left, right) in enumerate(zip(good, bad, strict=True)) if left != right]
        assert {good[different], bad[different]} in [{verb, third_person(verb)} for verb in verbs]
        subject_is_plural = good[1] in {plural(role) for topic in TOPICS.values() for role in topic["roles"]}
        assert (good[different] in verbs) == subject_is_plural


def test_words_of_recall_are_distinct_and_nowhere_in_the_prose():
    prose = set(re.findall(r"[a-z]+", "".join(take("prose", 100))))
    assert len(set(KEYS)) == 128 and len(set(VALUES)) == 128
    assert not prose & (set(KEYS) | set(VALUES)) and not set(KEYS) & set(VALUES)
