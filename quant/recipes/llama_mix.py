"""llama.cpp's mixes: the type that llama-quantize gives each tensor, with and without an importance matrix."""

from collections.abc import Callable
from dataclasses import dataclass

from quant.formats import get_format
from quant.models import ModelConfig
from quant.recipes.recipe import TensorChoice
from quant.recipes.roles import Role, gguf_place

HEAD_FORMAT = "q6_k"  # of most mixes
ODD_HEAD_FORMAT = "q8_0"  # for heads whose rows the mix's default cannot hold
ROUTER_FORMAT = "f32"  # small, and rounding it would choose other experts
EIGHT_EXPERTS_FORMAT = "q8_0"  # of most mixes' keys and values in models of eight experts: small next to the rest
BIG_VALUES = {"q3_k": "q5_k", "q4_k": "q5_k"}  # of values in a 70B model, an eighth of the queries


@dataclass(frozen=True, slots=True)
class Site:
    """Facts that a mix considers in addition to the role of a tensor.

    calibrated   whether an importance matrix is there
    downs        number of ffn_down tensors before this one if it is one of them: a shared expert's counts by itself
    """

    layer: int
    num_layers: int
    queries_per_kv: int
    num_experts: int
    calibrated: bool
    downs: int

    @property
    def more_bits(self) -> bool:
        return use_more_bits(self.layer, self.num_layers)

    @property
    def first_eighth(self) -> bool:
        return self.layer < self.num_layers // 8

    @property
    def first_sixteenth(self) -> bool:
        return self.layer < self.num_layers // 16

    @property
    def middle(self) -> bool:
        return self.num_layers // 8 <= self.layer < 7 * self.num_layers // 8

    @property
    def many_queries(self) -> bool:
        """Whether so many heads share a value that its rows are few."""
        return self.queries_per_kv >= 4

    @property
    def eight_experts(self) -> bool:
        return self.num_experts == 8


@dataclass(frozen=True, slots=True)
class Raise:
    """A role's format if `when` holds; words: the condition in the reason of a choice."""

    role: Role
    format: str
    when: Callable[[Site], bool] = lambda site: True
    words: str = ""


@dataclass(frozen=True, slots=True)
class LlamaMix:
    """label        llama.cpp's name
    default      format of every matrix that no other rule names
    raises       the first that fits gives the format
    calibrated   whether the statistics of a calibration are at hand, which llama.cpp knows as an imatrix
    head         format of the output matrix
    two_bits     one of the mixes of two bits: the values and keys of large models are raised by its own rules alone
    source       llama.cpp, src/llama-quant.cpp, llama_tensor_get_type_impl
    """

    label: str
    default: str
    raises: tuple[Raise, ...] = ()
    calibrated: bool = False
    head: str = HEAD_FORMAT
    two_bits: bool = False

    @property
    def formats(self) -> frozenset[str]:
        own = {self.default, self.head, ODD_HEAD_FORMAT, ROUTER_FORMAT, *(rule.format for rule in self.raises)}
        return frozenset(own | {BIG_VALUES[name] for name in own & set(BIG_VALUES)})

    def choose(self, name: str, row_size: int, model: ModelConfig) -> TensorChoice:
        place = gguf_place(name, model)
        role = place.role
        if role is Role.ROUTER:
            return TensorChoice(ROUTER_FORMAT, f"preset: {self.label} router of experts")
        if role is Role.HEAD:
            return TensorChoice(self._head_format(row_size), f"preset: {self.label} output")
        if role is Role.EMBEDDING and model.tie_word_embeddings:
            return TensorChoice(self._head_format(row_size), f"preset: {self.label} output (tied to the embedding)")
        if role is Role.EMBEDDING:
            return self._embedding()
        if place.layer is None:
            return TensorChoice(self.default, f"preset: {self.label} default")
        return self._in_layer(role, place.layer, model, downs_before(name, place.layer, model))

    def _embedding(self) -> TensorChoice:
        rule = next((rule for rule in self.raises if rule.role is Role.EMBEDDING), None)
        if rule is None:
            return TensorChoice(self.default, f"preset: {self.label} default")
        return TensorChoice(rule.format, f"preset: {self.label} {rule.role.value}")

    def _in_layer(self, role: Role, layer: int, model: ModelConfig, downs: int) -> TensorChoice:
        site = Site(
            layer,
            model.num_layers,
            model.num_heads // model.num_kv_heads,
            model.moe.num_experts if model.moe else 1,
            self.calibrated,
            downs,
        )
        rule = next((rule for rule in self.raises if rule.role is role and rule.when(site)), None)
        format_name = rule.format if rule else self.default
        if site.eight_experts and not self.two_bits and role in (Role.ATTN_K, Role.ATTN_V):
            return TensorChoice(EIGHT_EXPERTS_FORMAT, f"preset: {self.label} {role.value}, small beside 8 experts")
        if role is Role.ATTN_V and not self.two_bits and format_name in BIG_VALUES and is_70b(model):
            words = f"{role.value}, small beside its 8 query heads in a 70B model"
            return TensorChoice(BIG_VALUES[format_name], f"preset: {self.label} {words}")
        if rule is None:
            return TensorChoice(self.default, f"preset: {self.label} default")
        where = f" of layer {layer} ({rule.words})" if rule.words else ""
        return TensorChoice(rule.format, f"preset: {self.label} {role.value}{where}")

    def _head_format(self, row_size: int) -> str:
        if self.default == ODD_HEAD_FORMAT or row_size % get_format(self.default).block_size:
            return ODD_HEAD_FORMAT
        return self.head


def downs_before(name: str, layer: int, model: ModelConfig) -> int:
    """The number of ffn_down tensors before this layer's, or before its shared expert's if it is one of its own."""
    if model.moe is None or not model.moe.shared_ffn_size:
        return layer
    return layer + max(0, layer - model.moe.num_dense_layers) + ("shared_expert" in name)


def use_more_bits(layer: int, num_layers: int) -> bool:
    """The first and last eighth of the layers and every third between."""
    eighth = num_layers // 8
    return layer < eighth or layer >= 7 * num_layers // 8 or (layer - eighth) % 3 == 2


def is_70b(model: ModelConfig) -> bool:
    """llama.cpp knows a 70B model by its 80 layers; a Llama of as many with a key for every query is the 65B."""
    grouped = model.num_kv_heads != model.num_heads
    return model.num_layers == 80 and {"llama": grouped, "qwen2": True}.get(model.architecture.gguf_arch or "", False)
