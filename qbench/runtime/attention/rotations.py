"""The rotations of a model's layers: no rotation, one for all, or one for those with a window and one for the
others.
"""

from torch import Tensor

from qbench.runtime.attention.rope import RotationTable, inverse_frequencies
from quant.errors import InputError
from quant.models import ModelConfig, RopeConfig

Rotation = tuple[Tensor, Tensor] | None  # cos and sin [T, R]; None: nothing is rotated


class Rotations:
    """`RotationTable` of each RoPE that the config has, in the order that `Block.rope` counts them.

    call     start, end of the positions -> a Rotation each
    raises   InputError for a text that grows past the length at which its RoPE changes: cached keys were rotated by the
             frequencies of shorter texts
    """

    def __init__(self, config: ModelConfig) -> None:
        ropes = [config.rope, config.local_rope] if config.local_rope else [config.rope]
        self.tables = [Frequencies(rope, config.rope_dim) for rope in ropes] if config.has_rope else [None]

    def __call__(self, start: int, end: int) -> list[Rotation]:
        return [None if table is None else table.of(start, end)(start, end) for table in self.tables]

    def at(self, positions: Tensor) -> list[Rotation]:
        """A Rotation per layer kind for tokens of several sequences: positions [N] int64. raises  InputError past the
        length of a change,
        too
        """
        return [None if table is None else table.of_many(positions).at(positions) for table in self.tables]


class Frequencies:
    """The tables of one RoPE: the same for all texts, or another for long ones."""

    def __init__(self, rope: RopeConfig, rope_dim: int) -> None:
        self.changes_at = rope.changes_at
        self.short = RotationTable(inverse_frequencies(rope, rope_dim), rope.rotation_scale)
        if self.changes_at is not None:
            self.long = RotationTable(inverse_frequencies(rope, rope_dim, is_long=True), rope.rotation_scale)

    def of(self, start: int, end: int) -> RotationTable:
        if self.changes_at is None or end <= self.changes_at:
            return self.short
        if 0 < start <= self.changes_at:
            raise InputError(
                f"the model's rotation changes past {self.changes_at} tokens, and {start} of {end} are cached as those "
                "of a shorter text; give all of a longer one at once"
            )
        return self.long

    def of_many(self, positions: Tensor) -> RotationTable:
        if self.changes_at is not None and int(positions.max()) >= self.changes_at:
            raise InputError(
                f"the model's rotation changes past {self.changes_at} tokens: run longer sequences one by one, or give "
                "them tokens alike"
            )
        return self.short
