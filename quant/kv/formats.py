"""The named KV formats, one row each."""

from dataclasses import dataclass

import torch

from quant.kv.codec import Codec
from quant.kv.floats import Floats
from quant.kv.fp8 import Fp8
from quant.kv.ints import IntChannels, IntGroups

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


@dataclass(frozen=True, slots=True)
class KVFormat:
    """How a cache keeps keys and values."""

    name: str
    keys: Codec
    values: Codec

    @property
    def calibrated(self) -> bool:
        """Whether a model needs scales found beforehand to use it."""
        return self.keys.calibrated or self.values.calibrated

    def bytes_per_token(self, num_heads: int, head_dim: int, value_dim: int | None = None) -> float:
        """Of one token in one layer, scales included. value_dim: None where values are as wide as keys"""
        keys = self.keys.bytes_per_token(num_heads, head_dim)
        return keys + self.values.bytes_per_token(num_heads, head_dim if value_dim is None else value_dim)

    def check(self, head_dim: int) -> None:
        """raises InputError for heads of a size that it cannot hold"""
        self.keys.check(head_dim)
        self.values.check(head_dim)


def _both(name: str, codec: Codec) -> KVFormat:
    return KVFormat(name, codec, codec)


ROWS = (
    _both("kv-fp8", Fp8(E4M3, per="head")),
    _both("kv-fp8-tensor", Fp8(E4M3, per="tensor")),
    _both("kv-fp8-cal", Fp8(E4M3, per="tensor", calibrated=True)),  # what compressed-tensors and vLLM call FP8 KV
    _both("kv-fp8-cal-head", Fp8(E4M3, per="head", calibrated=True)),
    _both("kv-fp8-e5m2", Fp8(E5M2, per="head")),
    _both("kv-fp8-e5m2-cal", Fp8(E5M2, per="tensor", calibrated=True)),
    _both("kv-int8", IntGroups(8)),
    _both("kv-int4", IntGroups(4, group=32)),
    KVFormat("kv-int4-kc", IntChannels(4), IntGroups(4, group=32)),  # keys per channel
    _both("kv-f16", Floats(torch.float16)),  # what llama.cpp keeps unless it is told otherwise
    _both("kv-bf16", Floats(torch.bfloat16)),
)

KV_FORMATS = {row.name: row for row in ROWS}
