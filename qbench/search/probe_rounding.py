"""Tensors as the probes round them, with and without error feedback, each in the format nearest to the target."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from qbench.search.errors import Errors, Key
from qbench.search.sites import Site
from quant.errors import InputError
from quant.formats import dequantize, get_format
from quant.methods import Layer, make_method
from quant.models import ModelConfig
from quant.qtensor import QTensor
from quant.source import Source
from quant.stats import InputStats

FEEDBACK, PLAIN = KINDS = ("feedback", "plain")


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
