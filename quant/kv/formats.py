"""The named KV formats, one row each."""

from dataclasses import dataclass
from itertools import pairwise

from quant.kv.codec import Codec
from quant.kv.floats import Floats
from quant.kv.fp8 import Fp8
from quant.kv.ints import IntChannels, IntGroups

E4M3, E5M2 = "float8_e4m3fn", "float8_e5m2"


KIVI_RESIDUAL = 128  # tokens; the paper's R

FLOAT16 = Floats("float16")


@dataclass(frozen=True, slots=True)
class KVFormat:
    """How a cache keeps keys and values.

    residual  number of most recent tokens that stay float16, at least; 0: tokens are encoded as they come
    """

    name: str
    keys: Codec
    values: Codec
    residual: int = 0

    @property
    def calibrated(self) -> bool:
        """Whether a model needs scales found beforehand to use it."""
        return self.keys.calibrated or self.values.calibrated

    @property
    def token_group(self) -> int:
        """Number of tokens that are encoded together."""
        return max(self.keys.token_group, self.values.token_group)

    def num_encoded(self, num_tokens: int) -> int:
        """Number of tokens that are encoded if a sequence holds `num_tokens`; the ones after them are float16.

        With a residual, a group of tokens is encoded when `residual` tokens follow it.
        """
        if not self.residual:
            return num_tokens
        return max(0, num_tokens - self.residual) // self.token_group * self.token_group

    def uniform_runs(self, start: int, end: int) -> list[tuple[int, int]]:
        """The tokens start .. end - 1 in runs (start, end) whose queries all see the same tokens encoded.

        A query at position p sees the first num_encoded(p + 1) tokens encoded.
        """
        group = self.token_group
        cuts = range(self.residual + group - 1, end, group) if self.residual else ()
        bounds = [start, *(cut for cut in cuts if cut > start), end]
        return list(pairwise(bounds))

    def bytes_per_token(self, num_heads: int, head_dim: int, value_dim: int | None = None) -> float:
        """Bytes per encoded token and layer, scales included. value_dim: None if values are as wide as keys"""
        return _bytes_per_token(self.keys, self.values, num_heads, head_dim, value_dim)

    def float_bytes_per_token(self, num_heads: int, head_dim: int, value_dim: int | None = None) -> float:
        """Bytes per token of the residual and layer."""
        return _bytes_per_token(FLOAT16, FLOAT16, num_heads, head_dim, value_dim)

    def size_bytes(self, num_tokens: int, num_heads: int, head_dim: int, value_dim: int | None = None) -> float:
        """Bytes per layer of a sequence that holds `num_tokens`, scales and residual included."""
        encoded, sizes = self.num_encoded(num_tokens), (num_heads, head_dim, value_dim)
        return encoded * self.bytes_per_token(*sizes) + (num_tokens - encoded) * self.float_bytes_per_token(*sizes)

    def check(self, head_dim: int) -> None:
        """raises InputError for heads of a size that it cannot hold"""
        self.keys.check(head_dim)
        self.values.check(head_dim)


def _bytes_per_token(keys: Codec, values: Codec, num_heads: int, head_dim: int, value_dim: int | None) -> float:
    value_dim = head_dim if value_dim is None else value_dim
    return keys.bytes_per_token(num_heads, head_dim) + values.bytes_per_token(num_heads, value_dim)


def _kivi(bits: int) -> KVFormat:
    """Keys in groups of 32 tokens per channel, values in groups of 32 channels per token, recent tokens in float16.

    The authors encode keys 128 tokens at a time, so that 0 to 127 keys are float16, and values token by token, so that
    128 are. Here both are encoded in groups of 32 tokens, so that the 128 to 159 most recent tokens are float16. The
    authors' prefill attends to floats alone. Here a query of a prompt sees the same bytes as it would in decoding.

    source  Liu et al. 2024 (KIVI), arXiv:2402.02750, section 3.3 and algorithm 1
    """
    return KVFormat(f"kv-kivi-{bits}", IntChannels(bits), IntGroups(bits, group=32), residual=KIVI_RESIDUAL)


def _both(name: str, codec: Codec) -> KVFormat:
    return KVFormat(name, codec, codec)


ROWS = (
    _both("kv-fp8", Fp8(E4M3, per="head")),
    _both("kv-fp8-tensor", Fp8(E4M3, per="tensor")),
    _both("kv-fp8-cal", Fp8(E4M3, per="tensor", calibrated=True)),  # FP8 KV in compressed-tensors and vLLM
    _both("kv-fp8-cal-head", Fp8(E4M3, per="head", calibrated=True)),
    _both("kv-fp8-e5m2", Fp8(E5M2, per="head")),
    _both("kv-fp8-e5m2-cal", Fp8(E5M2, per="tensor", calibrated=True)),
    _both("kv-int8", IntGroups(8)),
    _both("kv-int4", IntGroups(4, group=32)),
    KVFormat("kv-int4-kc", IntChannels(4), IntGroups(4, group=32)),  # keys per channel
    _kivi(2),
    _kivi(4),
    _both("kv-f16", FLOAT16),  # llama.cpp's default
    _both("kv-bf16", Floats("bfloat16")),
)

KV_FORMATS = {row.name: row for row in ROWS}
