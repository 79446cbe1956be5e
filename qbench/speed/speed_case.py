"""The work of a speed measurement, and its length. Separate from `speed`, so that suites are read without importing
torch.
"""

from dataclasses import dataclass
from typing import ClassVar

from quant.errors import InputError
from quant.json_data import JsonData

MOST_ROUNDS = 1000  # where neither precision nor budget ends it before
PP, TG = 512, 128  # tokens by default, as of llama-bench
WARM_UP_STEPS = 4  # of a breakdown
LEAST = {"pp": 0, "tg": 0, "depth": 0, "batch": 1, "repetitions": 1}


@dataclass(frozen=True, slots=True)
class SpeedSizes(JsonData):
    """The sizes of a case, as rows of speeds have them."""

    batch: int
    pp: int
    tg: int
    depth: int


@dataclass(frozen=True, slots=True)
class SpeedCase(JsonData):
    """pp: tokens of a prompt; tg: steps of one token each; depth: tokens in the cache before either; batch: sequences.

    repetitions  rounds after the warm-up: so many, or where a precision is asked for at least so many
    precision    stop once every 95 % interval reaches no further than this share of its value to either side
    budget_s     or once this time has passed, with the repetitions done
    """

    json_omits: ClassVar[tuple[str, ...]] = ("precision", "budget_s")

    pp: int = PP
    tg: int = TG
    depth: int = 0
    repetitions: int = 5
    batch: int = 1
    precision: float | None = None
    budget_s: float | None = None

    def __post_init__(self) -> None:
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}, expected {least} or more")
        if not self.pp and not self.tg:
            raise InputError("pp and tg are both 0: nothing to measure; give at least one")
        if self.precision is not None and not 0 < self.precision < 1:
            raise InputError(f"precision is {self.precision}, expected a share between 0 and 1, such as 0.02")
        if self.budget_s is not None and self.precision is None:
            raise InputError("a budget is for a precision that it cuts short; give a precision, or repetitions alone")
        if self.budget_s is not None and self.budget_s < 0:
            raise InputError(f"budget_s is {self.budget_s}, expected 0 or more seconds")

    @property
    def sizes(self) -> SpeedSizes:
        return SpeedSizes(self.batch, self.pp, self.tg, self.depth)

    @property
    def longest(self) -> int:
        """Tokens of a sequence that the cache must hold."""
        return self.depth + max(self.pp, self.tg)

    @property
    def ends(self) -> list[tuple[int, int]]:
        """(tokens of a sequence, the last of them that came one at a time) when a phase is done, the longest first"""
        ends = [(self.depth + tokens, steps) for tokens, steps in ((self.pp, 0), (self.tg, self.tg)) if tokens]
        return sorted(ends, reverse=True)

    def check_context(self, limit: int) -> None:
        """raises InputError if the case needs more tokens than a model's context holds."""
        if self.longest > limit:
            raise InputError(
                f"pp {self.pp}, tg {self.tg} at depth {self.depth} need {self.longest} tokens, "
                f"the model's context holds {limit}; ask for fewer"
            )


def breakdown_depth(depth: int) -> int:
    """Tokens in the cache before the first step that a breakdown counts: at least one, then its warm-up."""
    return max(1, depth) + WARM_UP_STEPS


def fitting_sizes(pp: int | None, tg: int | None, depth: int, limit: int) -> tuple[int, int]:
    """(pp, tg): those given; for None PP and TG, at most the room that `limit` tokens leave behind `depth`.

    At least one token is left of each, which `SpeedCase.check_context` refuses in a full context.
    """
    room = max(1, limit - depth)
    return (min(PP, room) if pp is None else pp), (min(TG, room) if tg is None else tg)
