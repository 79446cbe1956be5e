"""A speed worker that takes 5 % more time for everything, busy like the rest of it, so that a gate should find it."""

import sys

from qbench.speed.speed_worker import TimedSubject, serve

SLOWER = 0.05


class SlowSubject(TimedSubject):
    def seconds(self, tokens: list[list[int]], step: int) -> float:
        taken = super().seconds(tokens, step)
        start = self.clock()
        while self.clock() - start < SLOWER * taken:
            pass
        return taken + (self.clock() - start)


if __name__ == "__main__":
    sys.exit(serve(SlowSubject))
