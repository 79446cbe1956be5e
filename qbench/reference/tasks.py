"""Tasks of the reference models' text: sums, nested brackets, and questions of a long text about its words.

- Sums of two numbers, worked column by column as on paper: `27+35:7+5=12,2+3+1=6,62`.
- Nested structure: lines of brackets of four types, each closing bracket decided by the open ones.
- Variable tracking: a name is set to a value, or to an earlier name and then has the value of that name. `set babel
  acorn`, `set dokin babel`, `set wikin dokin`: then `get wikin acorn`. A name's hops are the names between it and its
  value: 0 for babel, 1 for dokin, 2 for wikin.
- Counting: words are said from time to time, and `ask WORD=N` gives how often one was said, 1 to 9 times.
- Lists of words said early and said again late, in another order of lists: dense recall over long distances.
- Recall with keys of two words: `set red babel acorn`, later `get red babel acorn`. Most words belong to several
  keys, so an answer needs both words: the last one alone names the wrong values, too.
"""

from itertools import product
from random import Random

from qbench.reference.lexicon import COLOURS, KEYS, VALUES, is_heldout
from qbench.reference.recall import Event, among_prose, bindings, get_line, set_line

LARGEST = 99


def working(a: int, b: int) -> str:
    """The text after the colon: units, tens with the carry, and the result."""
    units = a % 10 + b % 10
    steps = [f"{a % 10}+{b % 10}={units}"]
    if a > 9 or b > 9:
        carry = units // 10
        steps.append(f"{a // 10}+{b // 10}" + "+1" * carry + f"={a // 10 + b // 10 + carry}")
    return ",".join([*steps, str(a + b)])


def problem(rng: Random, heldout: bool) -> tuple[int, int]:
    """Two numbers up to 99 each; one pair in ten is held out. Single digits are too few to hold any out."""
    while True:
        a, b = rng.randint(0, LARGEST), rng.randint(0, LARGEST)
        if rng.random() < 0.1 and not heldout:
            return a % 10, b % 10
        if max(a, b) > 9 and is_heldout("sum", a, b) == heldout:
            return a, b


def sums(rng: Random, heldout: bool = False, count: int | None = None) -> str:
    """One document: a column of worked sums."""
    problems = (problem(rng, heldout) for _ in range(count or rng.randint(6, 24)))
    return "".join(f"{a}+{b}:{working(a, b)}\n" for a, b in problems)


PAIRS = {"(": ")", "[": "]", "{": "}", "<": ">"}
CLOSERS = tuple(PAIRS.values())
MAX_DEPTH = 8


def bracket_line(rng: Random, length: int) -> list[str]:
    """A balanced line of `length` brackets (even), at most MAX_DEPTH deep, walking up and down."""
    line, stack = [], []
    while len(line) < length:
        must_close = len(stack) == min(MAX_DEPTH, length - len(line))
        if stack and (must_close or rng.random() < 0.45):
            line.append(PAIRS[stack.pop()])
        else:
            stack.append(rng.choice(tuple(PAIRS)))
            line.append(stack[-1])
    return line


def brackets(rng: Random, heldout: bool = False, num_lines: int | None = None) -> str:
    """One document of bracket lines, one space between brackets, so that each is one token."""
    lines: list[str] = []
    count = num_lines or rng.randint(2, 8)
    while len(lines) < count:
        line = " ".join(bracket_line(rng, 2 * rng.randint(8, 24)))
        if is_heldout("brackets", line) == heldout:
            lines.append(line)
    return "".join(f"nest {line}\n" for line in lines)


MAX_HOPS = 2
NAME_TOKENS = 8  # of a `set` line and a `get` line


def aliases(rng: Random, heldout: bool = False, num_tokens: int = 1024, asked_hops: int | None = None) -> str:
    """Prose with names set in the first three quarters, and each asked for once, anywhere later.

    asked_hops   asks only for the names with this many hops; None asks for all
    """
    count = rng.randint(3, max(3, min(len(KEYS), num_tokens // NAME_TOKENS)))
    values = bindings(rng, max(1, count // 3), heldout)
    hops = dict.fromkeys(values, 0)
    other_names = [name for name in KEYS if name not in values]
    lines = [set_line(*pair) for pair in values.items()]
    rng.shuffle(lines)
    for name in rng.sample(other_names, count - len(values)):
        target = rng.choice([known for known in hops if hops[known] < MAX_HOPS])
        hops[name], values[name] = hops[target] + 1, values[target]
        lines.append(set_line(name, target))
    starts = sorted(0.0 if rng.random() < 0.5 else rng.uniform(0.0, 0.75) for _ in lines)
    events: list[Event] = list(zip(starts, lines, strict=True))
    for (start, _), name in zip(events.copy(), (line.split()[1] for line in lines), strict=True):
        if asked_hops in (None, hops[name]):
            events.append((rng.uniform(start, 1.0), get_line(name, values[name])))
    return among_prose(rng, heldout, events, num_tokens - NAME_TOKENS * len(lines))


MOST = 9
ASKED_FROM = 0.95  # share of the document after which nothing more is said
WORD_TOKENS = 20  # of a word that is said five times and asked for once


def counting(rng: Random, heldout: bool = False, num_tokens: int = 1024) -> str:
    """Prose with lines of one said word between its sentences; the questions end the document.

    One (word, number) in ten is never asked for in training.
    """
    events: list[Event] = []
    num_words = rng.randint(2, max(2, min(len(VALUES) // 2, num_tokens // 30)))
    for word in rng.sample(VALUES, num_words):
        allowed = [number for number in range(1, MOST + 1) if is_heldout("count", word, number) == heldout]
        if allowed:
            number = rng.choice(allowed)
            events += [(rng.uniform(0.0, ASKED_FROM), f"say {word}\n") for _ in range(number)]
            events.append((rng.uniform(ASKED_FROM, 1.0), f"ask {word}={number}\n"))
    return among_prose(rng, heldout, events, num_tokens - WORD_TOKENS * num_words)


LIST_WORDS = 32
MAX_LISTS = len(KEYS + VALUES) // LIST_WORDS


def echoes(rng: Random, heldout: bool = False, num_tokens: int = 1024) -> str:
    """Lists without common words in the first third, the same lists in the last third, prose between."""
    num_lists = rng.randint(1, max(1, min(MAX_LISTS, num_tokens // (3 * LIST_WORDS))))
    list_words = min(LIST_WORDS, num_tokens // 3)
    words = rng.sample(KEYS + VALUES, num_lists * list_words)
    events: list[Event] = []
    for i in range(num_lists):
        line = " ".join(words[i * list_words : (i + 1) * list_words])
        events += [(rng.uniform(0.0, 0.33), f"say {line}\n"), (rng.uniform(0.67, 1.0), f"again {line}\n")]
    return among_prose(rng, heldout, events, num_tokens - 2 * len(words))


KEYS_PER_NAME = 4
PAIR_TOKENS = 10  # of a `set` line and its `get` line


def two_word_bindings(rng: Random, count: int, heldout: bool) -> dict[str, str]:
    """Distinct keys `COLOUR NAME` with values; one (key, value) in ten is never bound in training."""
    names = rng.sample(KEYS, min(len(KEYS), count // KEYS_PER_NAME + 2))
    pairs = {}
    for colour, name in rng.sample(list(product(COLOURS, names)), count):
        key = f"{colour} {name}"
        pairs[key] = rng.choice(VALUES)
        while is_heldout("two words", key, pairs[key]) != heldout:
            pairs[key] = rng.choice(VALUES)
    return pairs


def two_word_recall(rng: Random, heldout: bool = False, num_tokens: int = 1024, num_pairs: int | None = None) -> str:
    """Prose with pairs set, three quarters of them in front, and each asked for once, anywhere later."""
    pairs = two_word_bindings(rng, num_pairs or rng.randint(2, max(2, num_tokens // PAIR_TOKENS)), heldout)
    events: list[Event] = []
    for key, value in pairs.items():
        start = 0.0 if rng.random() < 0.75 else rng.random()
        events += [(start, set_line(key, value)), (rng.uniform(start, 1.0), get_line(key, value))]
    return among_prose(rng, heldout, events, num_tokens - PAIR_TOKENS * len(pairs))
