"""The order of training: recall first and dense, because induction forms late or never on a thin diet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer

from qbench.reference.corpus import EOS, MIX, documents


@dataclass(frozen=True, slots=True)
class Stage:
    """One stretch of the training run.

    end             share of the run at which it ends at the latest
    context         tokens per row
    batch_tokens    tokens per step
    mix             shares of documents by kind
    leave_at        ends early once this share of the recall answers is right (smoothed); None: only at `end`
    """

    name: str
    end: float
    context: int
    batch_tokens: int
    mix: Mapping[str, float] = field(default_factory=lambda: dict(MIX))
    leave_at: float | None = None


STAGES = (
    Stage("dense recall, 64", 0.2, 64, 4096, {"short_dense": 0.5, "echo": 0.5}, leave_at=0.9),
    Stage("dense recall, 256", 0.3, 256, 4096, {"dense": 0.6, "echo": 0.2, "prose": 0.1, "arithmetic": 0.1}, 0.9),
    Stage(
        "sparse recall, whole context", 0.6, 1024, 8192, {"sparse": 0.6, "prose": 0.1, "arithmetic": 0.2, "nested": 0.1}
    ),
    Stage("all skills", 1.0, 1024, 8192),
)

# A token that the text cannot predict teaches only its frequency, and an answer teaches recall. The weight depends
# on the context alone (`set _`, `set _ _`, `get _`), so the learnt probabilities stay calibrated.
CHANCE_WEIGHT, ANSWER_WEIGHT = 0.1, 3.0
NEWLINE = "Ċ"  # as byte-level BPE spells it


def rows(tokenizer: Tokenizer, stage: Stage, seed: int) -> Iterator[np.ndarray]:
    """Rows [context + 1] of whole documents, each after EOS, the last one cut off: no row starts inside a document."""
    eos = token_id(tokenizer, EOS)
    stream = documents(seed, stage.mix)
    row: list[int] = []
    while True:
        row += [eos, *tokenizer.encode(next(stream)).ids]
        if len(row) > stage.context:
            yield np.array(row[: stage.context + 1])
            row = []


def batches(tokenizer: Tokenizer, stage: Stage, seed: int) -> Iterator[np.ndarray]:
    """Batches [batch_tokens // context, context + 1] int64 without end."""
    source = rows(tokenizer, stage, seed)
    count = stage.batch_tokens // stage.context
    while True:
        yield np.stack([next(source) for _ in range(count)])


def answers(tokens: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """Whether a token follows from the token after an earlier occurrence of its predecessor: [..., T] bool.

    The value after `get KEY`, and the words after `again` but the first.
    """
    again = _line_begins(tokens, tokenizer, "again") & (tokens != token_id(tokenizer, NEWLINE))
    first = preceded(tokens, token_id(tokenizer, "again"), 1)
    return preceded(tokens, token_id(tokenizer, "get"), 2) | (again & ~first)


def loss_weights(tokens: np.ndarray, tokenizer: Tokenizer) -> np.ndarray:
    """The weight of each token as a target: [..., T] float32."""
    set_id, get_id = token_id(tokenizer, "set"), token_id(tokenizer, "get")
    chance = preceded(tokens, set_id, 1) | preceded(tokens, set_id, 2) | preceded(tokens, get_id, 1)
    chance |= _line_begins(tokens, tokenizer, "say")
    weights = np.where(chance, CHANCE_WEIGHT, 1.0)
    return np.where(answers(tokens, tokenizer), ANSWER_WEIGHT, weights).astype(np.float32)


def token_id(tokenizer: Tokenizer, text: str) -> int:
    """The id of a word the curriculum rests on.

    raises   ValueError where the vocabulary splits it: its targets would silently weigh like any other
    """
    found = tokenizer.token_to_id(text)
    if found is None:
        raise ValueError(f"got a tokenizer that splits {text!r}, expected it as one token; learn it from another seed")
    return found


def preceded(tokens: np.ndarray, mark: int, distance: int) -> np.ndarray:
    """Whether the token `mark` is `distance` tokens before: [..., T] bool."""
    found = np.zeros(tokens.shape, dtype=bool)
    found[..., distance:] = tokens[..., :-distance] == mark
    return found


def _line_begins(tokens: np.ndarray, tokenizer: Tokenizer, word: str) -> np.ndarray:
    """Whether the token's line begins with `word`, which itself is left out: [..., T] bool."""
    position = np.arange(tokens.shape[-1])
    opened = np.where(tokens == token_id(tokenizer, word), position, -1)
    ended = np.where(tokens == token_id(tokenizer, NEWLINE), position, -1)
    last_opened, last_ended = (np.maximum.accumulate(marks, axis=-1) for marks in (opened, ended))
    # A line's own newline still belongs to it.
    return (last_opened >= 0) & (last_opened > np.roll(last_ended, 1, axis=-1)) & (opened < 0)
