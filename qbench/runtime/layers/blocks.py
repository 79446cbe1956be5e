"""One decoder layer from its tensors, whatever its architecture: the table of tensors lists its parts."""

from collections.abc import Callable, Sequence

from qbench.runtime.caches.storage.latent_format import has_latent_kernels
from qbench.runtime.kernel_steps import has_attention_step, has_net_step, weighs_scores
from qbench.runtime.layers.attention import Attention, AttentionNorms, KernelAttention
from qbench.runtime.layers.block import Block
from qbench.runtime.layers.builder import Builder
from qbench.runtime.layers.embedding import Embedding, Positions, Table
from qbench.runtime.layers.feed_forward import FeedForward, KernelFeedForward
from qbench.runtime.layers.fused import FusedLinears
from qbench.runtime.layers.latent import LATENT_EPS, LatentAttention, NormedLinears
from qbench.runtime.layers.latent_kernel import KernelLatentAttention
from qbench.runtime.layers.linear import as_tensor
from qbench.runtime.layers.moe import ExpertFeedForward, ExpertParts
from qbench.runtime.layers.norm import LayerNorm, Norm
from quant.formats import dequantize
from quant.models import EMBEDDING_NORM, POSITIONS, ModelConfig, MoeConfig, row_names, split_name
from quant.models.online import DOWN_PROJ
from quant.models.rows import CHOICE_BIAS
from quant.present import present
from quant.qtensor import QTensor

TORCH_ATTENTION = "torch-attention"  # of scores that cpu_kernels cannot weigh


class BlockBuilder(Builder):
    """Builds layers, norms and linears of a decoder by the canonical names of its tensors."""

    def __init__(self, config: ModelConfig, read: Callable[[str], QTensor], impl: str) -> None:
        super().__init__(read, impl)
        self.config = config
        self._rows = row_names(config)

    def block(self, layer: int) -> Block:
        prefix = f"model.layers.{layer}"
        attention_norm = self.norm(f"{prefix}.input_layernorm")
        attend = self.latent_attention if self.config.mla else self.attention
        attention = attend(layer, f"{prefix}.self_attn")
        feed_forward_norm = self.norm(f"{prefix}.post_attention_layernorm")
        feed_forward = self._any_feed_forward(layer, prefix)
        rope = 1 if self.config.rope_of(layer) is self.config.local_rope else 0
        return Block(attention, feed_forward, attention_norm, feed_forward_norm, rope)

    def _any_feed_forward(self, layer: int, prefix: str) -> FeedForward | ExpertFeedForward:
        if self.config.layer_kind(layer) == "moe":
            return self.experts(prefix)
        has_gate = self._has(f"{prefix}.mlp.gate_proj.weight")
        return self.feed_forward(f"{prefix}.mlp") if has_gate else self.plain_feed_forward(f"{prefix}.mlp")

    def attention(self, layer: int, prefix: str) -> Attention:
        qkv = self.linears(*(f"{prefix}.{name}_proj" for name in "qkv"))
        output = self.linears(f"{prefix}.o_proj")
        norms = AttentionNorms(*(self._norm_if_any(f"{prefix}.{name}_norm") for name in ("q", "k", "output")))
        if self.has_kernels and not weighs_scores(self.config):
            self.impls[prefix] = TORCH_ATTENTION  # next to linears of the kernels
        if self.has_kernels and has_attention_step(self.config):
            return KernelAttention(self.config, layer, qkv, output, norms)
        return Attention(self.config, layer, qkv, output, norms)

    def latent_attention(self, layer: int, prefix: str) -> LatentAttention:
        sizes = present(self.config.mla)
        has_plain_q = sizes.has_plain_q
        down = self.linears(f"{prefix}.{'q_proj' if has_plain_q else 'q_a_proj'}", f"{prefix}.kv_a_proj_with_mqa")
        q_up = None
        if not has_plain_q:
            q_up = NormedLinears(self.norm(f"{prefix}.q_a_layernorm", LATENT_EPS), self.linears(f"{prefix}.q_b_proj"))
        kv_norm = self.norm(f"{prefix}.kv_a_layernorm", LATENT_EPS)
        kv_up = self.linears(f"{prefix}.kv_b_proj")
        kind = KernelLatentAttention if self.has_kernels and has_latent_kernels(sizes) else LatentAttention
        output = self.linears(f"{prefix}.o_proj")
        return kind(self.config, layer, down, kv_norm, kv_up, output, q_up, self.impl)

    def feed_forward(self, prefix: str, names: Sequence[str] = ("gate_proj", "up_proj", "down_proj")) -> FeedForward:
        gate, up, down = (f"{prefix}.{name}" for name in names)
        activation, output_norm = self.config.activation, self._norm_if_any(f"{prefix}.output_norm")
        if self.has_kernels and has_net_step(self.config):
            return KernelFeedForward(self.linears(gate, up), self.linears(down))
        turned = DOWN_PROJ in self.config.online
        return FeedForward(self.linears(gate, up), self.linears(down), activation, output_norm, turned)

    def plain_feed_forward(self, prefix: str) -> FeedForward:
        """Without a gate."""
        into, out_of = self.linears(f"{prefix}.fc1"), self.linears(f"{prefix}.fc2")
        return FeedForward(into, out_of, self.config.activation)

    def experts(self, prefix: str) -> ExpertFeedForward:
        moe, keys = present(self.config.moe), present(self.config.architecture.experts)
        prefix = f"{prefix}.{keys.module}"
        router = self.linears(f"{prefix}.gate")
        choice_bias = self.vector(f"{prefix}.gate.{CHOICE_BIAS}") if moe.has_choice_bias else None
        nets = [self.feed_forward(f"{prefix}.experts.{n}", keys.projections) for n in self.own_experts(moe)]
        shared = self.feed_forward(f"{prefix}.shared_experts") if moe.shared_ffn_size else None
        return self.routed(ExpertParts(moe, router, nets, shared, choice_bias))

    def own_experts(self, moe: MoeConfig) -> range:
        """Numbers of the experts that this process holds."""
        return range(moe.num_experts)

    def routed(self, parts: ExpertParts) -> ExpertFeedForward:
        return ExpertFeedForward(parts)

    def linears(self, *names: str) -> FusedLinears:
        qtensors = [self.read(f"{name}.weight") for name in names]
        biases = [self.vector(f"{name}.bias") if self._has(f"{name}.bias") else None for name in names]
        return self.fused_tensors(names, qtensors, biases)

    def norm(self, name: str, eps: float | None = None) -> Norm:
        """eps: None takes the config's"""
        eps = self.config.norm_eps if eps is None else eps
        if self.config.architecture.norm != "layer":
            return self.rms_norm(name, eps)
        norm = LayerNorm(self.vector(f"{name}.weight"), self.vector(f"{name}.bias"), eps)
        self.weight_bytes += norm.size_bytes
        return norm

    def _norm_if_any(self, name: str) -> Norm | None:
        return self.norm(name) if self._has(f"{name}.weight") else None

    def embedding(self, table: Table) -> Embedding:
        """table: of the tokens"""
        config, positions = self.config, None
        if self._has(POSITIONS):
            positions = Positions(as_tensor(dequantize(self.read(POSITIONS))), config.architecture.position_offset)
            self.weight_bytes += positions.table.nbytes
        norm = self._norm_if_any(EMBEDDING_NORM.removesuffix(".weight"))
        return Embedding(table, config.vocab_size, config.embedding_scale, positions, norm)

    def _has(self, name: str) -> bool:
        return split_name(name)[0] in self._rows
