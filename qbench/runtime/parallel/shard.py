"""Shard: the layers, heads and features of a model that one rank holds, and its part of each tensor."""

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from qbench.run.rank_layout import GATHER, RankLayout
from quant.formats import get_format
from quant.models import ModelConfig
from quant.qtensor import QTensor

LAYER = re.compile(r"^model\.layers\.(\d+)\.(.+)\.(weight|bias)$")
# Linears of a layer -> the kind of their rows, or of their columns: query heads, key-value heads, net features.
ROWS = {
    "self_attn.q_proj": "heads",
    "self_attn.k_proj": "kv_heads",
    "self_attn.v_proj": "kv_heads",
    "mlp.gate_proj": "features",
    "mlp.up_proj": "features",
    "mlp.fc1": "features",
}
COLUMNS = {"self_attn.o_proj": "heads", "mlp.down_proj": "features", "mlp.fc2": "features"}


class Cut(NamedTuple):
    """Rows of a tensor, or its columns."""

    of_rows: bool
    part: slice


@dataclass(frozen=True, slots=True)
class Shard:
    """The part of rank `rank`.

    layers    of the model, those of this rank
    ranges    "heads", "kv_heads" (both as rows, head_dim each), "features" -> the range of every lane
    hidden    range of output rows of every lane, of the output and down projections under cut "gather"
    vocabulary  range of rows of every lane, of the output head
    experts   routed experts of this rank in each of its layers
    """

    layout: RankLayout
    rank: int
    layers: range
    ranges: dict[str, list[slice]]
    hidden: list[slice]
    vocabulary: list[slice]
    experts: range = range(0)

    @property
    def lane(self) -> int:
        """Number of this rank's part of each tensor."""
        return 0 if self.layout.tp == 1 else self.layout.lane(self.rank)

    @property
    def is_first_stage(self) -> bool:
        return self.layout.stage(self.rank) == 0

    @property
    def is_last_stage(self) -> bool:
        return self.layout.stage(self.rank) == self.layout.pp - 1

    def config(self, config: ModelConfig) -> ModelConfig:
        """That of the layers and heads that this rank holds; its embedding is whole."""
        layers = self.layers
        sizes = {name: rows_size(ranges[self.lane]) for name, ranges in self.ranges.items()}
        moe = config.moe
        if moe is not None:
            moe = replace(moe, num_dense_layers=max(0, moe.num_dense_layers - layers.start))
        return replace(
            config,
            num_layers=len(layers),
            windows=config.windows[layers.start : layers.stop],
            num_heads=sizes["heads"] // config.head_dim,
            num_kv_heads=sizes["kv_heads"] // config.head_dim,
            ffn_size=sizes["features"],
            moe=moe,
        )

    def widths(self, name: str) -> tuple[list[int], list[int]]:
        """Input and output features of every lane, of the output or down projection `name` under cut "gather"."""
        ranges = self.ranges[COLUMNS[name]]
        return [rows_size(each) for each in ranges], [rows_size(each) for each in self.hidden]

    def head_part(self, qtensor: QTensor) -> QTensor:
        return _rows(qtensor, self.vocabulary[self.lane])

    @property
    def head_widths(self) -> list[int]:
        return [rows_size(each) for each in self.vocabulary]

    def name(self, local: str) -> str:
        """The model's name of this rank's tensor."""
        return re.sub(r"^model\.layers\.(\d+)\.", self._global_layer, local)

    def _global_layer(self, match: re.Match) -> str:
        return f"model.layers.{int(match[1]) + self.layers.start}."

    def part(self, local: str, qtensor: QTensor) -> QTensor:
        """This rank's part of the tensor that it calls `local`."""
        match = LAYER.match(local)
        if match is None or self.layout.tp == 1:
            return qtensor
        cut = self.cut_of(match[2], match[3] == "weight")
        if cut is None:
            return qtensor
        return _rows(qtensor, cut.part) if cut.of_rows else get_format(qtensor.format).take_columns(qtensor, cut.part)

    def cut_of(self, module: str, is_weight: bool) -> Cut | None:
        """This rank's rows or columns of a layer's weight or bias; None: all."""
        if module in ROWS:
            return Cut(True, self.ranges[ROWS[module]][self.lane])
        if module in COLUMNS and self.layout.cut == GATHER:
            return Cut(True, self.hidden[self.lane])
        if module in COLUMNS and is_weight:
            return Cut(False, self.ranges[COLUMNS[module]][self.lane])
        return None


def _rows(qtensor: QTensor, rows: slice) -> QTensor:
    return qtensor.take_rows(np.arange(rows.start, rows.stop))


def rows_size(rows: slice) -> int:
    return rows.stop - rows.start
