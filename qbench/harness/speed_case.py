"""What a speed measurement runs. Apart from `speed`, so that suites are read without importing torch."""

from dataclasses import dataclass

from quant.errors import InputError

WARM_UP_DECODE = 4  # steps: enough to touch every weight and wake the threads


@dataclass(frozen=True, slots=True)
class SpeedCase:
    """pp: tokens of the prompt; tg: single-token steps; depth: tokens already in the cache before either."""

    pp: int = 512
    tg: int = 128
    depth: int = 0
    repetitions: int = 5

    def __post_init__(self) -> None:
        for name, least in (("pp", 0), ("tg", 0), ("depth", 0), ("repetitions", 1)):
            if getattr(self, name) < least:
                raise InputError(f"{name} is {getattr(self, name)}, expected {least} or more")
        if not self.pp and not self.tg:
            raise InputError("pp and tg are both 0: nothing to measure; give at least one")

    @property
    def longest(self) -> int:
        """Tokens that the cache must hold."""
        return self.depth + max(self.pp, self.tg, WARM_UP_DECODE)

    def check_context(self, limit: int) -> None:
        """raises InputError if the case needs more tokens than a model's context holds."""
        if self.longest > limit:
            raise InputError(
                f"pp {self.pp}, tg {self.tg} at depth {self.depth} need {self.longest} tokens, "
                f"the model's context holds {limit}; ask for fewer"
            )
