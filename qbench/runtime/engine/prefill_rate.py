"""`PrefillRate`: how long a token of a prompt takes, as measured in the forward passes that the engine makes."""

# Passes of fewer tokens mostly measure reading the weights, which a prompt's longer passes share among their tokens.
LEAST_TOKENS = 32
MEMORY_TOKENS = 8192  # older tokens count half: the rate follows the machine's load


class PrefillRate:
    """seconds_per_token   0.0 as long as nothing has been measured"""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    def add(self, num_tokens: int, seconds: float) -> None:
        """A forward pass took so long."""
        if num_tokens < LEAST_TOKENS:
            return
        if self._tokens > MEMORY_TOKENS:
            self._tokens, self._seconds = self._tokens / 2, self._seconds / 2
        self._tokens += num_tokens
        self._seconds += seconds

    @property
    def seconds_per_token(self) -> float:
        return self._seconds / self._tokens if self._tokens else 0.0
