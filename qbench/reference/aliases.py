"""Variable tracking: a name is set to a value, or to an earlier name and then has the value of that name.

`set babel acorn`, `set dokin babel`, `set wikin dokin`: then `get wikin acorn`. A name's hops are the names between it
and its value: 0 for babel, 1 for dokin, 2 for wikin.
"""

from random import Random

from qbench.reference.lexicon import KEYS
from qbench.reference.recall import Event, among_prose, bindings, get_line, set_line

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
