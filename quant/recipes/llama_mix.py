"""llama.cpp's mixes: the type that llama-quantize gives each tensor of a dense decoder, without an imatrix."""

from dataclasses import dataclass, field

from quant.formats import get_format
from quant.models import ModelConfig
from quant.recipes.recipe import TensorPlan
from quant.recipes.roles import Role, place_of

HEAD_FORMAT = "q6_k"  # of every mix but Q8_0
ODD_HEAD_FORMAT = "q8_0"  # for heads whose rows the mix's default cannot hold


@dataclass(frozen=True, slots=True)
class LlamaMix:
    """label      llama.cpp's name
    default    format of every matrix that no other rule names
    more_bits  role -> format in the layers where errors cost most
    source     llama.cpp, src/llama-quant.cpp, llama_tensor_get_type_impl
    """

    label: str
    default: str
    more_bits: dict[Role, str] = field(default_factory=dict)

    @property
    def formats(self) -> frozenset[str]:
        return frozenset({self.default, HEAD_FORMAT, ODD_HEAD_FORMAT, *self.more_bits.values()})

    def choose(self, name: str, row_size: int, model: ModelConfig) -> TensorPlan:
        place = place_of(name)
        role, layer = place.role, place.layer
        if role is Role.HEAD:
            return TensorPlan(self._head_format(row_size), f"preset: {self.label} output")
        if role is Role.EMBEDDING and model.tie_word_embeddings:
            return TensorPlan(self._head_format(row_size), f"preset: {self.label} output (tied to the embedding)")
        if layer is not None and role in self.more_bits and use_more_bits(layer, model.num_layers):
            return TensorPlan(self.more_bits[role], f"preset: {self.label} {role.value} of layer {layer} (more bits)")
        if role is Role.ATTN_V and self.default == "q4_k" and is_llama_70b(model):
            return TensorPlan(
                "q5_k", f"preset: {self.label} {role.value}, small beside its 8 query heads in a 70B model"
            )
        return TensorPlan(self.default, f"preset: {self.label} default")

    def _head_format(self, row_size: int) -> str:
        if self.default == ODD_HEAD_FORMAT or row_size % get_format(self.default).block_size:
            return ODD_HEAD_FORMAT
        return HEAD_FORMAT


def use_more_bits(layer: int, num_layers: int) -> bool:
    """The first and last eighth of the layers and every third between."""
    eighth = num_layers // 8
    return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2


def is_llama_70b(model: ModelConfig) -> bool:
    """llama.cpp knows a 70B model by its 80 layers with grouped key-value heads."""
    return model.num_layers == 80 and model.num_kv_heads != model.num_heads
