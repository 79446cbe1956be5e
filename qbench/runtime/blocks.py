"""One decoder layer from its tensors, whatever its architecture: the table of tensors says what there is."""

from collections.abc import Callable

from torch import Tensor

from qbench.runtime.attention import Attention, KernelAttention
from qbench.runtime.block import Block
from qbench.runtime.feed_forward import FeedForward, KernelFeedForward
from qbench.runtime.fused import FusedLinears
from qbench.runtime.latent import LATENT_EPS, LatentAttention
from qbench.runtime.linear import as_tensor, has_cpu_kernels
from qbench.runtime.moe import ExpertFeedForward
from qbench.runtime.norm import KernelRMSNorm, RMSNorm
from quant.formats import dequantize
from quant.models import ModelConfig, row_names, split_name
from quant.qtensor import QTensor


class BlockBuilder:
    """Builds layers, norms and linears; remembers what runs for each linear and how much memory they hold.

    read  canonical name -> that tensor; each is asked for once
    """

    def __init__(self, config: ModelConfig, read: Callable[[str], QTensor], impl: str) -> None:
        self.config = config
        self.read = read
        self.impl = impl
        self.has_kernels = impl != "reference" and has_cpu_kernels()
        self.impls: dict[str, str] = {}
        self.weight_bytes = 0
        self._rows = row_names(config)

    def block(self, layer: int) -> Block:
        prefix = f"model.layers.{layer}"
        attention_norm = self.norm(f"{prefix}.input_layernorm")
        attend = self.latent_attention if self.config.mla else self.attention
        attention = attend(layer, f"{prefix}.self_attn")
        feed_forward_norm = self.norm(f"{prefix}.post_attention_layernorm")
        is_moe = self.config.layer_kind(layer) == "moe"
        feed_forward = self.experts(f"{prefix}.mlp") if is_moe else self.feed_forward(f"{prefix}.mlp")
        return Block(attention, feed_forward, attention_norm, feed_forward_norm)

    def attention(self, layer: int, prefix: str) -> Attention:
        qkv = self.linears(*(f"{prefix}.{name}_proj" for name in "qkv"))
        output = self.linears(f"{prefix}.o_proj")
        kind = KernelAttention if self.has_kernels else Attention
        if not self._has(f"{prefix}.q_norm.weight"):
            return kind(self.config, layer, qkv, output)
        return kind(self.config, layer, qkv, output, self.norm(f"{prefix}.q_norm"), self.norm(f"{prefix}.k_norm"))

    def latent_attention(self, layer: int, prefix: str) -> LatentAttention:
        has_plain_q = self.config.mla.has_plain_q
        down = self.linears(f"{prefix}.{'q_proj' if has_plain_q else 'q_a_proj'}", f"{prefix}.kv_a_proj_with_mqa")
        q_norm = None if has_plain_q else self.norm(f"{prefix}.q_a_layernorm", LATENT_EPS)
        q_up = None if has_plain_q else self.linears(f"{prefix}.q_b_proj")
        kv_norm = self.norm(f"{prefix}.kv_a_layernorm", LATENT_EPS)
        kv_up = self.linears(f"{prefix}.kv_b_proj")
        return LatentAttention(self.config, layer, down, kv_norm, kv_up, self.linears(f"{prefix}.o_proj"), q_norm, q_up)

    def feed_forward(self, prefix: str) -> FeedForward:
        gate_up = self.linears(f"{prefix}.gate_proj", f"{prefix}.up_proj")
        net = KernelFeedForward if self.has_kernels else FeedForward
        return net(gate_up, self.linears(f"{prefix}.down_proj"))

    def experts(self, prefix: str) -> ExpertFeedForward:
        moe = self.config.moe
        router = self.linears(f"{prefix}.gate")
        experts = [self.feed_forward(f"{prefix}.experts.{expert}") for expert in range(moe.num_experts)]
        shared = self.feed_forward(f"{prefix}.shared_experts") if moe.shared_ffn_size else None
        return ExpertFeedForward(moe, router, experts, shared)

    def linears(self, *names: str) -> FusedLinears:
        qtensors = [self.read(f"{name}.weight") for name in names]
        biases = [self.vector(f"{name}.bias") if self._has(f"{name}.bias") else None for name in names]
        return self.fused_tensors(names, qtensors, biases)

    def fused_tensors(
        self, names: tuple[str, ...], qtensors: list[QTensor], biases: list[Tensor | None]
    ) -> FusedLinears:
        linears = FusedLinears(qtensors, biases, self.impl)
        self.impls |= dict(zip(names, linears.impl_names, strict=True))
        self.weight_bytes += linears.size_bytes
        return linears

    def norm(self, name: str, eps: float | None = None) -> RMSNorm:
        """eps: None takes the config's"""
        weight = self.vector(f"{name}.weight")
        self.weight_bytes += weight.nbytes
        norm = KernelRMSNorm if self.has_kernels else RMSNorm
        return norm(weight, self.config.rms_norm_eps if eps is None else eps)

    def vector(self, name: str) -> Tensor:
        return as_tensor(dequantize(self.read(name)))

    def _has(self, name: str) -> bool:
        return split_name(name)[0] in self._rows
