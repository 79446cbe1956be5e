"""Preparation: few requests become tokens at once, and a limited number waits for that."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from qbench.serve.errors import Refused

Result = TypeVar("Result")
AT_ONCE = 2  # the engine computes meanwhile, and a template renders one conversation at a time


class Preparation:
    """most   requests in preparation; the next one is refused with 429"""

    def __init__(self, most: int) -> None:
        self._most, self._count = most, 0
        self._turns = asyncio.Semaphore(AT_ONCE)

    async def run(self, prepare: Callable[[], Result]) -> Result:
        """Result of `prepare`, from a thread. raises Refused, and the errors of `prepare`"""
        if self._count >= self._most:
            raise Refused(429, f"{self._count} requests are in preparation; try again later")
        self._count += 1
        try:
            async with self._turns:
                return await asyncio.to_thread(prepare)
        finally:
            self._count -= 1
