"""agree: all ranks run the same code on the same model."""

import json

from qbench.runtime.parallel.meeting import Meeting
from quant.errors import InputError


def agree(meeting: Meeting, facts: dict[str, str | None]) -> None:
    """Compare facts of every rank with those of rank 0.

    facts    name -> value on this rank; equal on all ranks
    raises   InputError, on all ranks, that names the first rank and fact that differ
    """
    first, *others = (json.loads(text) for text in meeting.tell("facts", json.dumps(facts)))
    for rank, other in enumerate(others, 1):
        for key, value in first.items():
            if other.get(key) != value:
                raise InputError(
                    f"{meeting.name(rank)} has another {key} than rank 0: got {other.get(key)}, expected {value}; "
                    "give every rank the same"
                )
