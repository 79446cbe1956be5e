"""Ranks that run different code, models or command lines."""

import json

import pytest

from qbench.runtime.parallel.joined import agree
from quant.errors import InputError

FACTS = {"commit": "c0ffee", "model file": "ab12"}


class Told:
    """Ranks that gave these facts."""

    def __init__(self, *facts):
        self.facts = facts

    def tell(self, topic, value):
        return [json.dumps(facts) for facts in self.facts]

    def name(self, rank):
        return f"rank {rank} on host-{rank}"


def test_equal_facts_pass():
    agree(Told(FACTS, FACTS, FACTS), FACTS)


@pytest.mark.parametrize("key", FACTS)
def test_the_first_difference_is_named_with_its_rank(key):
    other = {**FACTS, key: "other"}
    with pytest.raises(InputError, match=f"rank 2 on host-2 has another {key} than rank 0: got other, expected "):
        agree(Told(FACTS, FACTS, other), FACTS)
