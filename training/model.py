"""The trained network: Llama, in the plainest torch that trains fast on two cores."""

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes that all reference networks have."""

    vocab_size: int
    hidden_size: int = 256
    intermediate_size: int = 768
    num_hidden_layers: int = 4
    num_attention_heads: int = 4


@dataclass(frozen=True, slots=True)
class Shape(Sizes):
    """Sizes of the network. Every linear's input width is a multiple of 256, so K-quants apply."""

    num_key_value_heads: int = 2
    max_position_embeddings: int = 1024
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_attention_heads

    def hf_config(self, eos_token_id: int) -> dict:
        """The keys of a Hugging Face config.json that transformers' LlamaForCausalLM loads."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            **asdict(self),
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "tie_word_embeddings": True,
            "bos_token_id": eos_token_id,
            "eos_token_id": eos_token_id,
            "torch_dtype": "bfloat16",
        }


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        x = x.float()
        return self.weight * (x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps))


class Attention(nn.Module):
    def __init__(self, shape: Shape):
        super().__init__()
        self.num_heads, self.num_kv_heads = shape.num_attention_heads, shape.num_key_value_heads
        kv_size = self.num_kv_heads * shape.head_dim
        self.q_proj = nn.Linear(shape.hidden_size, shape.hidden_size, bias=False)
        self.k_proj = nn.Linear(shape.hidden_size, kv_size, bias=False)
        self.v_proj = nn.Linear(shape.hidden_size, kv_size, bias=False)
        self.o_proj = nn.Linear(shape.hidden_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.num_heads, -1).transpose(1, 2)  # [B, H, T, D]
        k = self.k_proj(x).view(B, T, self.num_kv_heads, -1).transpose(1, 2)  # [B, Hkv, T, D]
        v = self.v_proj(x).view(B, T, self.num_kv_heads, -1).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = self.num_heads // self.num_kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)  # [B, H, T, D]
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).reshape(B, T, -1))


class MLP(nn.Module):
    def __init__(self, size: int, inner_size: int):
        super().__init__()
        self.gate_proj = nn.Linear(size, inner_size, bias=False)
        self.up_proj = nn.Linear(size, inner_size, bias=False)
        self.down_proj = nn.Linear(inner_size, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """Attention and MLP, each added to the stream; self_attn takes (x, cos, sin)."""

    def __init__(self, self_attn: nn.Module, mlp: nn.Module, size: int, eps: float):
        super().__init__()
        self.input_layernorm = RMSNorm(size, eps)
        self.self_attn = self_attn
        self.post_attention_layernorm = RMSNorm(size, eps)
        self.mlp = mlp

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Decoder(nn.Module):
    """layers   made after the embedding, which draws the first random numbers"""

    def __init__(self, embedding: nn.Embedding, layers: Iterable[Layer], eps: float):
        super().__init__()
        self.embed_tokens = embedding
        self.layers = nn.ModuleList(layers)
        self.norm = RMSNorm(embedding.embedding_dim, eps)

    @property
    def blocks(self) -> list[Layer]:
        """`layers` with their own type."""
        return [cast(Layer, layer) for layer in self.layers]


class Network(nn.Module):
    """Logits of a decoder; its state dict has Hugging Face names.

    tokens   [B, T] int64, T <= max_position_embeddings
    returns  [B, T, V]
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, model: Decoder, rope: tuple[Tensor, Tensor]):
        super().__init__()
        self.model = model
        for name, table in zip(("cos", "sin"), rope, strict=True):
            self.register_buffer(name, table, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        T = tokens.shape[1]
        x = self.model.embed_tokens(tokens)  # [B, T, C]
        for layer in self.model.blocks:
            x = layer(x, self.cos[:T], self.sin[:T])
        return F.linear(self.model.norm(x), self.head_weight)

    @property
    @abstractmethod
    def head_weight(self) -> Tensor:
        """[V, C]"""


class Llama(Network):
    """A Llama with a tied head."""

    def __init__(self, shape: Shape):
        size, eps = shape.hidden_size, shape.rms_norm_eps
        embedding = nn.Embedding(shape.vocab_size, size)
        parts = ((Attention(shape), MLP(size, shape.intermediate_size)) for _ in range(shape.num_hidden_layers))
        super().__init__(Decoder(embedding, (Layer(*both, size, eps) for both in parts), eps), rope_tables(shape))
        self.apply(init_weights)
        # Residual writers start small, so the stream's variance does not grow with depth (GPT-2's rule).
        for name, weight in self.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(weight, std=0.02 / (2 * shape.num_hidden_layers) ** 0.5)

    @property
    def head_weight(self) -> Tensor:
        return self.model.embed_tokens.weight


def init_weights(module: nn.Module) -> None:
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)


def rope_tables(shape: Shape) -> tuple[Tensor, Tensor]:
    """cos and sin, each [max_position_embeddings, head_dim], halves repeated as rotate() pairs them."""
    freq = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2).float() / shape.head_dim)  # [D/2]
    angle = torch.outer(torch.arange(shape.max_position_embeddings).float(), freq)  # [T, D/2]
    angle = torch.cat([angle, angle], dim=-1)  # [T, D]
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of x [B, H, T, D]: channel i is paired with i + D/2 (Su et al. 2021, arXiv:2104.09864)."""
    left, right = x.chunk(2, dim=-1)
    return (x * cos + torch.cat([-right, left], dim=-1) * sin).to(x.dtype)
