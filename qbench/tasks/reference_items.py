"""The reference models' own skills as items of lm-eval: held-out text of the generators, the same at every call.

The task files of suites/tasks name these functions. Items are text, so any model can be asked; the reference models'
own tokenizer only measures distances between things. lm-eval hands each function the `dataset_kwargs` and, in `about`,
the task file's metadata.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from random import Random

import datasets
from tokenizers import Tokenizer

from qbench.reference.corpus import HELDOUT_SEED
from qbench.reference.lexicon import VALUES
from qbench.reference.prose import minimal_pair
from qbench.reference.registry import weights_dir
from qbench.reference.skills import DISTANCES, RECALL_CONTEXT, needle
from qbench.reference.tasks import CLOSERS, brackets, problem, sums, working

Items = dict[str, datasets.Dataset]


def minimal_pairs(count: int, **about: object) -> Items:
    """A story's beginning, the sentence that follows it, and the same with its verb in the wrong number."""
    rng = Random(HELDOUT_SEED)
    pairs = (minimal_pair(rng) for _ in range(count))
    return _test_split({"context": pair.context.rstrip(), "good": pair.good, "bad": pair.bad} for pair in pairs)


def recall(count: int, context: int = RECALL_CONTEXT, distances: Sequence[int] = DISTANCES, **about: object) -> Items:
    """`count` items per distance: a value set once, asked for so many tokens later, at the end of `context` tokens."""
    tokenizer = _tokenizer()

    def items() -> Iterator[dict]:
        for _, distance, tokens, answer in _needles(tokenizer, count, context, distances):
            text = tokenizer.decode(tokens[1:], skip_special_tokens=False)  # without EOS, which every model adds
            yield {"context": text, "answer": answer, "distance": distance}

    return _test_split(items())


def _tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(weights_dir("llama") / "tokenizer.json"))


def _needles(
    tokenizer: Tokenizer, count: int, context: int, distances: Sequence[int]
) -> Iterator[tuple[Random, int, list[int], str]]:
    """`count` texts per distance: the random numbers that go on, the distance, the tokens and the answer."""
    for distance in distances:
        rng = Random(HELDOUT_SEED + distance)
        for _ in range(count):
            tokens, answer = needle(rng, tokenizer, distance, context)
            yield rng, distance, tokens, tokenizer.decode([answer]).strip()


def questions(count: int, context: int, distances: Sequence[int], **about: object) -> Items:
    """`recall` with its parts apart, and 8 values to choose from.

    The question names the key, and the answer begins by asking for it. The first question is about another key of the
    same context, with its answer.
    """
    tokenizer = _tokenizer()

    def items() -> Iterator[dict]:
        for rng, distance, tokens, value in _needles(tokenizer, count, context, distances):
            text, key = tokenizer.decode(tokens[1:-2], skip_special_tokens=False), tokenizer.decode(tokens[-1:]).strip()
            others = [line.split()[1:] for line in text.splitlines() if line.startswith("set ") and key not in line]
            other = rng.choice([pair for pair in others if len(pair) == 2])
            choices = rng.sample([each for each in VALUES if each != value], 7)
            choices.insert(rng.randrange(8), value)
            yield {
                "context": text,
                "question": f"say {key}\n",
                "answer_prefix": f"get {key}",
                "first_question": f"say {other[0]}\nget {other[0]} {other[1]}\n",
                "choices": choices,
                "answer": choices.index(value),
                "distance": distance,
            }

    return _test_split(items())


def worked_sums(count: int, **about: object) -> Items:
    """Four solved sums and a fifth to solve, with its working."""
    rng = Random(HELDOUT_SEED)

    def items() -> Iterator[dict]:
        for _ in range(count):
            a, b = problem(rng, heldout=True)
            yield {"context": f"{sums(rng, count=4)}{a}+{b}:", "answer": working(a, b)}

    return _test_split(items())


def closing_brackets(count: int, **about: object) -> Items:
    """Lines of nested brackets up to one that closes."""
    rng = Random(HELDOUT_SEED)

    def items() -> Iterator[dict]:
        while True:
            words = brackets(rng, heldout=True, num_lines=2).split(" ")
            at = rng.choice([i for i, word in enumerate(words) if word[:1] in CLOSERS])
            yield {"context": " ".join(words[:at]), "answer": CLOSERS.index(words[at][:1]), "choices": list(CLOSERS)}

    return _test_split(islice(items(), count))


def _test_split(items: Iterator[dict]) -> Items:
    return {"test": datasets.Dataset.from_list(list(items))}
