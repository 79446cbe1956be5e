"""The second trained network: latent attention and routed experts, in DeepSeek-V2's shape."""

from dataclasses import asdict, dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.model import MLP, Decoder, Layer, Network, RMSNorm, Sizes, init_weights

LATENT_EPS = 1e-6  # of the norm inside the attention, which DeepSeek-V2's config does not name


@dataclass(frozen=True, slots=True)
class MlaMoeShape(Sizes):
    """Sizes of the network; names as in DeepSeek-V2's config.

    7.8 million parameters, 15.5 MB in bfloat16. A cache holds 128 + 32 numbers of a token in a layer, against 4 heads'
    (96 + 64) of the same attention decompressed. Rows of kv_b_proj are 128 wide, half a K-quant's block;
    all others are multiples of its 256.
    """

    kv_lora_rank: int = 128
    qk_nope_head_dim: int = 64
    qk_rope_head_dim: int = 32
    v_head_dim: int = 64
    n_routed_experts: int = 8
    num_experts_per_tok: int = 2
    n_shared_experts: int = 1
    moe_intermediate_size: int = 256
    first_k_dense_replace: int = 1
    routed_scaling_factor: float = 4.0  # n_routed / per_tok: the two weights sum to 1 where the router is undecided
    max_position_embeddings: int = 1024
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def qk_head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    def hf_config(self, eos_token_id: int) -> dict:
        """The keys of a Hugging Face config.json that transformers' DeepseekV2ForCausalLM loads."""
        return {
            "architectures": ["DeepseekV2ForCausalLM"],
            "model_type": "deepseek_v2",
            **asdict(self),
            "num_key_value_heads": self.num_attention_heads,
            "head_dim": self.qk_rope_head_dim,  # transformers takes the rotary width from here
            "q_lora_rank": None,
            "scoring_func": "softmax",
            "topk_method": "greedy",
            "norm_topk_prob": False,
            "moe_layer_freq": 1,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": False,
            "bos_token_id": eos_token_id,
            "eos_token_id": eos_token_id,
            "torch_dtype": "bfloat16",
        }


class LatentAttention(nn.Module):
    """source   DeepSeek-V2, arXiv:2405.04434, section 2.1, with plain queries"""

    def __init__(self, shape: MlaMoeShape):
        super().__init__()
        self.shape, heads = shape, shape.num_attention_heads
        self.q_proj = nn.Linear(shape.hidden_size, heads * shape.qk_head_dim, bias=False)
        self.kv_a_proj_with_mqa = nn.Linear(shape.hidden_size, shape.kv_lora_rank + shape.qk_rope_head_dim, bias=False)
        self.kv_a_layernorm = RMSNorm(shape.kv_lora_rank, LATENT_EPS)
        self.kv_b_proj = nn.Linear(shape.kv_lora_rank, heads * (shape.qk_nope_head_dim + shape.v_head_dim), bias=False)
        self.o_proj = nn.Linear(heads * shape.v_head_dim, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        B, T, _ = x.shape
        shape = self.shape
        q = self.q_proj(x).view(B, T, shape.num_attention_heads, -1).transpose(1, 2)  # [B, H, T, N + R]
        latent, turned = self.kv_a_proj_with_mqa(x).split((shape.kv_lora_rank, shape.qk_rope_head_dim), -1)
        kv = self.kv_b_proj(self.kv_a_layernorm(latent)).view(B, T, shape.num_attention_heads, -1).transpose(1, 2)
        kept, v = kv.split((shape.qk_nope_head_dim, shape.v_head_dim), -1)  # [B, H, T, N], [B, H, T, V]
        turned = rotate_pairs(turned[:, None], cos, sin)  # [B, 1, T, R]: one for all heads
        k = torch.cat((kept, turned.expand(-1, shape.num_attention_heads, -1, -1)), -1)
        q_kept, q_turned = q.split((shape.qk_nope_head_dim, shape.qk_rope_head_dim), -1)
        q = torch.cat((q_kept, rotate_pairs(q_turned, cos, sin)), -1)
        # Padded to the keys' width: torch's fast attention wants one width for all three.
        v = F.pad(v, (0, shape.qk_head_dim - shape.v_head_dim))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)[..., : shape.v_head_dim]
        return self.o_proj(out.transpose(1, 2).reshape(B, T, -1))


class Experts(nn.Module):
    """Each token through its two likeliest experts, weighed by the router's softmax, and through the shared one.

    `balance` holds the last call's load-balance loss: 1 if tokens spread evenly, more if they crowd
    (arXiv:2405.04434, eq. 23); `counts` [E] holds how many (token, choice) pairs each expert has got since it was
    last set to zero.
    """

    counts: Tensor

    def __init__(self, shape: MlaMoeShape):
        super().__init__()
        self.shape = shape
        self.gate = nn.Linear(shape.hidden_size, shape.n_routed_experts, bias=False)
        sizes = (shape.hidden_size, shape.moe_intermediate_size)
        self.experts = nn.ModuleList(MLP(*sizes) for _ in range(shape.n_routed_experts))
        self.shared_experts = MLP(shape.hidden_size, shape.n_shared_experts * shape.moe_intermediate_size)
        self.register_buffer("counts", torch.zeros(shape.n_routed_experts, dtype=torch.int64), persistent=False)
        self.balance = torch.zeros(())

    @property
    def nets(self) -> list[MLP]:
        """`experts` with their own type."""
        return [cast(MLP, expert) for expert in self.experts]

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, -2)  # [M, C]
        scores = F.linear(rows.float(), self.gate.weight.float()).softmax(-1)  # [M, E]
        weights, chosen = scores.topk(self.shape.num_experts_per_tok, dim=-1)  # [M, k]
        counts = chosen.flatten().bincount(minlength=self.shape.n_routed_experts)
        self.counts += counts
        self.balance = self.shape.n_routed_experts * (counts / counts.sum() * scores.mean(0)).sum()
        out = self.shared_experts(rows)
        # Each pair of token and choice once, those of one expert together.
        by_expert = chosen.flatten().argsort(stable=True)
        tokens = by_expert // chosen.shape[1]
        weights = (weights * self.shape.routed_scaling_factor).flatten()[by_expert].to(out.dtype)
        parts = [expert(rows[mine]) for expert, mine in zip(self.experts, tokens.split(counts.tolist()), strict=True)]
        return out.index_add(0, tokens, torch.cat(parts).to(out.dtype) * weights[:, None]).view_as(x)


class MlaMoe(Network):
    """A DeepSeek-V2."""

    def __init__(self, shape: MlaMoeShape):
        embedding = nn.Embedding(shape.vocab_size, shape.hidden_size)
        layers = (layer_of(shape, index) for index in range(shape.num_hidden_layers))
        super().__init__(Decoder(embedding, layers, shape.rms_norm_eps), pair_tables(shape))
        self.lm_head = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)
        self.apply(init_weights)

    @property
    def head_weight(self) -> Tensor:
        return self.lm_head.weight

    @property
    def routed(self) -> list[Experts]:
        return [layer.mlp for layer in self.model.blocks if isinstance(layer.mlp, Experts)]


def layer_of(shape: MlaMoeShape, index: int) -> Layer:
    attention = LatentAttention(shape)
    is_dense = index < shape.first_k_dense_replace
    mlp = MLP(shape.hidden_size, shape.intermediate_size) if is_dense else Experts(shape)
    return Layer(attention, mlp, shape.hidden_size, shape.rms_norm_eps)


def pair_tables(shape: MlaMoeShape) -> tuple[Tensor, Tensor]:
    """cos and sin, each [max_position_embeddings, qk_rope_head_dim / 2]: one angle a pair of neighbours."""
    freq = shape.rope_theta ** (-torch.arange(0, shape.qk_rope_head_dim, 2).float() / shape.qk_rope_head_dim)
    angle = torch.outer(torch.arange(shape.max_position_embeddings).float(), freq)  # [T, R / 2]
    return angle.cos(), angle.sin()


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [B, H, T, R]: channel 2 i is paired with 2 i + 1, as DeepSeek stores them."""
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)  # [B, H, T, R / 2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2).to(x.dtype)
