"""The text of the reference models: four skills, each a stream of documents and a held-out set apart from it.

Every sentence comes from the templates and word lists of this package; a seed gives the same text on every machine.
Held-out text is unseen because of its items, not because of the seed alone: subject-attractor pairs, key-value pairs,
sums and bracket lines are each divided by `is_heldout`, and the training stream never contains the held-out tenth.
"""

from collections.abc import Callable, Iterator, Mapping
from random import Random

from qbench.reference.prose import story
from qbench.reference.recall import dense, echo, sparse
from qbench.reference.tasks import brackets, sums

EOS = "<|endoftext|>"  # precedes every document; also the tokenizer's bos
HELDOUT_SEED = 777


def recall(rng: Random, heldout: bool = False) -> str:
    return rng.choice((dense, sparse, sparse))(rng, heldout)


def short_dense(rng: Random, heldout: bool = False) -> str:
    return dense(rng, heldout, num_pairs=7)  # 56 tokens: one document a row of 64


DOCUMENTS: dict[str, Callable[[Random, bool], str]] = {
    "prose": story,
    "recall": recall,
    "arithmetic": sums,
    "nested": brackets,
}
SKILLS = tuple(DOCUMENTS)

# The training curriculum also asks for one kind of recall alone.
MAKERS = DOCUMENTS | {"short_dense": short_dense, "dense": dense, "sparse": sparse, "echo": echo}

# Documents differ in length: these shares make prose and recall about two thirds of the tokens.
MIX = {"prose": 0.35, "recall": 0.25, "arithmetic": 0.25, "nested": 0.15}


def documents(seed: int, mix: Mapping[str, float] = MIX, heldout: bool = False) -> Iterator[str]:
    """Documents without end, each of a skill drawn by `mix` (shares of documents, not of tokens)."""
    rng = Random(seed)
    names, shares = list(mix), list(mix.values())
    while True:
        yield MAKERS[rng.choices(names, shares)[0]](rng, heldout)


def heldout_text(skill: str | None = None, num_chars: int = 200_000) -> str:
    """Held-out documents of one skill, or of all in the training mix, each after EOS: the same at every call."""
    mix = MIX if skill is None else {skill: 1.0}
    text: list[str] = []
    size = 0
    for document in documents(HELDOUT_SEED, mix, heldout=True):
        text.append(EOS + document)
        size += len(text[-1])
        if size >= num_chars:
            return "".join(text)
    raise AssertionError("documents() never ends")
