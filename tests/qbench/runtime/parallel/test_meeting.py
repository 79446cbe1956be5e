"""Waiting for another rank."""

import math
import time
from collections import Counter

from qbench.runtime.parallel import meeting
from qbench.runtime.parallel.meeting import Meeting

POLLS = 30


class Store:
    """A store that has the key after POLLS questions, and counts the questions by key."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def check(self, keys: list[str]) -> bool:
        self.asked[keys[0]] += 1
        return keys[0] == "topic/1" and self.asked["topic/1"] > POLLS

    def get(self, key: str) -> bytes:
        self.asked[f"get {key}"] += 1
        return b"0"


def test_a_poll_asks_for_one_key(monkeypatch):
    monkeypatch.setattr(meeting, "POLL_S", 0)
    monkeypatch.setattr(meeting, "LOOK_S", math.inf)
    waiting = object.__new__(Meeting)
    waiting.store, waiting.timeout_s = Store(), 300.0
    assert waiting._told("topic/1", 1, time.monotonic()) == "0"
    assert waiting.store.asked == {"topic/1": POLLS + 1, "get topic/1": 1, "get signs/1": 1, "end/1": 1}
