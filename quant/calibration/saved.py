"""SavedStatistics: those of another source, and a copy of them on the disk."""

from collections.abc import Mapping
from pathlib import Path

from quant.calibration.live import LiveStatistics
from quant.calibration.stats_file import has_part, write_part
from quant.errors import InputError
from quant.qtensor import QTensor
from quant.stage import steps_done
from quant.stats import LayerStats, Names, Needs, Quantize, merge_stats


class SavedStatistics:
    """`live`, with a part file in `folder` for every layer.

    keep   statistics to collect besides those that the recipe's methods need
    """

    def __init__(self, live: LiveStatistics, folder: Path, keep: frozenset[str]) -> None:
        self.live = live
        self.folder = folder
        self.keep = keep

    def begin(self, tensors: Mapping[str, QTensor]) -> None:
        self.live.begin(tensors)

    def through(
        self, index: int, tensors: Mapping[str, QTensor], needs: Needs, quantize: Quantize, *, in_steps: bool
    ) -> None:
        seen: list[LayerStats] = []

        def keep(stats: LayerStats, names: Names) -> dict[str, QTensor]:
            seen.append(stats)
            return quantize(stats, names)

        self.live.through(index, tensors, lambda names: needs(names) | self.keep, keep, in_steps=in_steps)
        self._saved(index, merge_stats(seen))

    def done(self, index: int) -> None:
        self.live.done(index)

    def head(self, norm: Mapping[str, QTensor], names: Names, needs: Needs) -> LayerStats:
        stats = self.live.head(norm, names, lambda names: needs(names) | self.keep)
        return self._saved(self.live.config.num_layers, stats)

    def _saved(self, index: int, stats: LayerStats) -> LayerStats:
        write_part(self.folder, index, stats)
        return stats


def check_saved(folder: Path, num_layers: int) -> None:
    """raises InputError if a run is to continue that kept no statistics of the layers that are done"""
    if not all(has_part(folder, index) for index in range(min(steps_done(folder), num_layers))):
        raise InputError(
            f"{folder} was begun without --stats or --export-imatrix, and what its layers read is gone; continue "
            "without them, or start again without --resume"
        )
