"""`TierTally`: counts of the blocks that a KV cache reads from its disk."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TierReads:
    """Means over decode steps.

    blocks_loaded  blocks of all layers that came from the disk, those among them that were read ahead and not needed
    bytes_read     of these blocks
    hit_share      share of the needed blocks that were in memory
    """

    blocks_loaded: float
    bytes_read: float
    hit_share: float


class TierTally:
    """Counts all blocks, and again those of forward passes that bring one token.

    num_asked   blocks that attention needed
    num_loaded  blocks that came from the disk
    num_unused  blocks that were read ahead of a need that did not come
    """

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self.num_asked = self.num_loaded = self.num_unused = 0
        self._seq_len = self._asked = self._loaded = self._unused = 0  # when the last forward pass ended
        self._steps = self._step_asked = self._step_loaded = self._step_unused = 0

    def advance(self, seq_len: int) -> None:
        """A forward pass has ended."""
        if seq_len == self._seq_len + 1:
            self._steps += 1
            self._step_asked += self.num_asked - self._asked
            self._step_loaded += self.num_loaded - self._loaded
            self._step_unused += self.num_unused - self._unused
        self.truncate(seq_len)

    def truncate(self, seq_len: int) -> None:
        """The sequence has so many tokens; blocks so far do not count for its next step."""
        self._seq_len, self._asked, self._loaded = seq_len, self.num_asked, self.num_loaded
        self._unused = self.num_unused

    @property
    def reads(self) -> TierReads | None:
        """None before the first step"""
        if not self._steps:
            return None
        per_step = (self._step_loaded + self._step_unused) / self._steps
        hits = 1 - self._step_loaded / self._step_asked if self._step_asked else 1.0
        return TierReads(per_step, per_step * self.block_bytes, hits)
