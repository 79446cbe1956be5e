"""Forward passes with one group of tensors or the KV cache rounded, a decoder layer at a time: the KLD that it costs.

All passes advance together, so the weights of one layer are in memory; hidden states are in files. A pass starts at the
first layer that its group changes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from qbench.runtime.streamed import StreamedDecoder, StreamedLayer
from qbench.search.errors import Errors, Key
from qbench.search.groups import Group
from qbench.search.near_kld import NearKld
from qbench.search.sites import Site
from quant.calibration.hidden import HiddenStates
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.kv import KVScheme
from quant.methods import Layer, make_method
from quant.models import ModelConfig
from quant.qtensor import QTensor
from quant.source import Source
from quant.stats import InputStats

Tensors = Mapping[str, QTensor]
BATCH_TOKENS = 2048
LOGITS = 1 << 26  # of a batch: 256 MiB in float32
Probe = tuple[Group, str]  # the tensors that a pass rounds, and the kind of rounding
BASE: Probe = (None, "base"), ""
FEEDBACK, PLAIN = KINDS = ("feedback", "plain")


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


@dataclass(frozen=True, slots=True)
class ProbeRounding:
    """bits: per weight, near which the probes round. All rounded tensors are in float32."""

    source: Source
    config: ModelConfig
    bits: float

    def key(self, site: Site, errors: Errors, method: str) -> Key:
        """Format and method of a probe; without statistics of the site `imatrix` is plain rounding."""
        if method == "gptq":
            return self._nearest(site, [fmt for fmt, how in errors if how == "gptq"]), "gptq"
        fmt = self._nearest(site, site.formats)
        return (fmt, method) if (fmt, method) in errors else (fmt, "rtn")

    def plain(self, site: Site, tensor: QTensor, stats: InputStats | None) -> QTensor:
        importance = None if stats is None or not stats.num_tokens else stats.importance
        fmt = self._nearest(site, site.formats)
        return _in_float(get_format(fmt).quantize(dequantize(tensor), importance=importance))

    def fed_back(
        self, sites: Sequence[tuple[Site, Errors]], tensors: Mapping[str, QTensor], inputs: Mapping[str, InputStats]
    ) -> dict[str, QTensor]:
        """The tensors of one layer with GPTQ's codes, without those that GPTQ cannot round."""
        formats = {
            name: self.key(site, errors, "gptq")[0]
            for site, errors in sites
            if any(how == "gptq" for _, how in errors)
            for name in site.names
            if name in inputs and inputs[name].num_tokens
        }
        weights = {name: dequantize(tensors[name]) for name in formats}
        try:
            made = make_method("gptq", {}).quantize_layer(
                Layer(weights, formats, config=self.config), {name: inputs[name] for name in formats}
            )
        except InputError:  # a Hessian that no damping makes positive definite
            return {}
        return {name: _in_float(each) for name, each in made.items()}

    def _nearest(self, site: Site, formats: Sequence[str] | Mapping[str, int]) -> str:
        num_weights = sum(prod(self.source.tensors[name].shape) for name in site.names)
        return min(formats, key=lambda fmt: abs(8 * site.formats[fmt] / num_weights - self.bits))


def _in_float(tensor: QTensor) -> QTensor:
    return get_format("f32").quantize_ref(dequantize(tensor))
