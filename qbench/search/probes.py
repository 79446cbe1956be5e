"""Forward passes with one group of tensors or the KV cache rounded, a decoder layer at a time: the KLD that it costs.

All passes advance together, so the weights of one layer are in memory; hidden states are in files. A pass starts at the
first layer that its group changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.streamed import StreamedDecoder, StreamedLayer
from qbench.search.groups import Group
from qbench.search.near_kld import NearKld
from quant.calibration.hidden import HiddenStates
from quant.formats import dequantize
from quant.kv import KVScheme
from quant.qtensor import QTensor

Tensors = Mapping[str, QTensor]
BATCH_TOKENS = 2048
LOGITS = 1 << 26  # of a batch: 256 MiB in float32
Probe = tuple[Group, str]  # the tensors that a pass rounds, and the kind of rounding
BASE: Probe = (None, "base"), ""


@dataclass
class Probes:
    """The passes over `tokens` [W, T] int64.

    changed   probe -> tensors of the layer at hand that it rounds; the caller sets them per layer
    schemes   probe that rounds keys and values instead -> their format
    """

    decoder: StreamedDecoder
    tokens: np.ndarray
    folder: Path
    schemes: Mapping[Probe, KVScheme] = field(default_factory=dict)
    _states: dict[Probe, HiddenStates] = field(default_factory=dict)

    def begin(self, tensors: Tensors, changed: Mapping[Probe, Tensors]) -> None:
        """tensors: the embedding and all that belongs to it"""
        for probe, some in {BASE: {}, **{probe: {} for probe in self.schemes}, **changed}.items():
            state = self._new(probe)
            for windows in self._batches():
                embedded = self.decoder.embed(dict(tensors) | dict(some), torch.from_numpy(self.tokens[windows]))
                state.write(windows, embedded)

    def layer(self, index: int, tensors: Tensors, changed: Mapping[Probe, Tensors]) -> None:
        """Advances every pass by this layer; groups that it changes first start here, from the unchanged model."""
        plain = self.decoder.layer(index, tensors)
        for probe, some in changed.items():
            before = self._states.get(probe, self._states[BASE])
            self._advance(probe, before, self.decoder.layer(index, dict(tensors) | dict(some)))
        for probe in [probe for probe in self._states if probe not in changed and probe != BASE]:
            self._advance(probe, self._states[probe], plain.keeping(self.schemes.get(probe)))
        self._advance(BASE, self._states[BASE], plain)

    def losses(self, norm: Tensors, head: QTensor, changed: Mapping[Probe, QTensor]) -> dict[Probe, float]:
        """Mean KLD of every pass against the unchanged model, nats. changed: heads of groups that round it"""
        weight = torch.from_numpy(dequantize(head))  # [V, H]
        heads = {probe: torch.from_numpy(dequantize(each)) for probe, each in changed.items()}
        sums = dict.fromkeys((set(self._states) | set(heads)) - {BASE}, 0.0)
        for windows in self._batches(LOGITS // len(weight)):
            near = NearKld(self._logits(BASE, norm, weight, windows))
            for probe in sums:
                sums[probe] += near.sum(self._logits(probe, norm, heads.get(probe, weight), windows))
        return {probe: total / self.tokens.size for probe, total in sums.items()}

    @torch.no_grad()
    def _logits(self, probe: Probe, norm: Tensors, weight: Tensor, windows: slice) -> Tensor:
        state = self._states.get(probe, self._states[BASE])
        return torch.nn.functional.linear(self.decoder.norm(norm, state.read(windows)), weight).flatten(0, 1)

    def _advance(self, probe: Probe, before: HiddenStates, layer: StreamedLayer) -> None:
        after = self._new(probe) if probe not in self._states else self._states[probe]
        for windows in self._batches():
            after.write(windows, layer(before.read(windows)))

    def _new(self, probe: Probe) -> HiddenStates:
        path = self.folder / f"probe-{len(self._states)}.f32"
        self._states[probe] = HiddenStates(path, (*self.tokens.shape, self.decoder.config.hidden_size))
        self._states[probe].create()
        return self._states[probe]

    def _batches(self, most_tokens: int = BATCH_TOKENS) -> list[slice]:
        num_windows, seq_len = self.tokens.shape
        step = max(1, min(most_tokens, BATCH_TOKENS) // seq_len)
        return [slice(start, min(start + step, num_windows)) for start in range(0, num_windows, step)]
