"""A model before any of its bytes: config, RoPE, and the tensors that follow from them."""

from quant.models.architecture import EMBEDDING, EMBEDDING_NORM, FINAL_NORM, HEAD, POSITIONS, Architecture
from quant.models.architectures import ARCHITECTURES
from quant.models.attention import AttentionRule
from quant.models.config import ModelConfig
from quant.models.mla import MlaConfig
from quant.models.moe import MoeConfig
from quant.models.rope import RopeConfig
from quant.models.tensors import ExpectedTensor, expected_tensors, is_leftover, names_by_layer, row_names, split_name

__all__ = [
    "ARCHITECTURES",
    "EMBEDDING",
    "EMBEDDING_NORM",
    "FINAL_NORM",
    "HEAD",
    "POSITIONS",
    "Architecture",
    "AttentionRule",
    "ExpectedTensor",
    "MlaConfig",
    "ModelConfig",
    "MoeConfig",
    "RopeConfig",
    "expected_tensors",
    "is_leftover",
    "names_by_layer",
    "row_names",
    "split_name",
]
