"""A decoder whose linears and cache round as a recipe's formats do, in bases of channels that can be learned.

The stream stays in one basis. A linear turns its input, rounds it, and turns it back, so a basis changes rounding
errors and nothing else: weights stay as they are, whatever the basis.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from qbench.runtime.reference_decoder import ReferenceDecoder
from quant.formats import ActivationFormat
from quant.kv.codec import Codec
from quant.kv.formats import KVFormat
from quant.models import split_name
from quant.present import present
from quant.rotation import RotatedSource


class RoundedDecoder(ReferenceDecoder):
    """Logits with rounded inputs of linears and rounded keys and values; weights are not rounded.

    inputs   canonical name of a weight -> the format that rounds its input
    kv       None: keys and values are kept as they are
    bases    first that of the stream [K, K], then that of each layer's values [D, D], float32; None: nothing is rounded
    """

    def __init__(self, source: RotatedSource, inputs: Mapping[str, ActivationFormat], kv: KVFormat | None) -> None:
        super().__init__(source, torch.float32)
        self.inputs, self.kv = inputs, kv
        self.bases: list[Tensor] | None = None

    def linear(self, x: Tensor, name: str) -> Tensor:
        fmt = self.inputs.get(f"{name}.weight")
        if fmt is not None and self.bases is not None:
            x = self._rounded(x, name, fmt)
        return super().linear(x, name)

    def kept(self, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if self.kv is None or self.bases is None or self.kv.calibrated:
            return k, v
        basis = self.bases[1 + layer]
        return _through(self.kv.keys, k), _through(self.kv.values, v @ basis) @ basis.T

    def _rounded(self, x: Tensor, name: str, fmt: ActivationFormat) -> Tensor:
        bases = present(self.bases)
        if name.endswith("down_proj"):
            return round_inputs(x, fmt)
        if name.endswith("o_proj"):
            basis = bases[1 + present(split_name(f"{name}.weight")[1])]
            heads = x.unflatten(-1, (-1, len(basis))) @ basis  # [B, T, H, D]
            return (round_inputs(heads.flatten(-2), fmt).unflatten(-1, (-1, len(basis))) @ basis.T).flatten(-2)
        return round_inputs(x @ bases[0], fmt) @ bases[0].T


def round_inputs(x: Tensor, fmt: ActivationFormat) -> Tensor:
    """x [..., K] as the format rounds it. Its gradient knows that errors grow with the largest magnitude of a token."""
    tokens = x.detach().reshape(-1, x.shape[-1]).numpy()
    error = torch.from_numpy(fmt.fake_quantize_input(tokens, {})).view(x.shape) - x.detach()
    largest = x.abs().amax(dim=-1, keepdim=True)
    return x + error * (largest / largest.detach().clamp_min(1e-30))


def _through(codec: Codec, x: Tensor) -> Tensor:
    """x as the codec gives it back; its gradient is that of x"""
    return x + (codec.round_trip(x.detach()) - x.detach())
