"""One token a sequence through a Llama: the kernels in the order of a model, over pages, ready to be captured.

A layer is five launches and four products: add + norm, rotation with the cache write, attention over the pages (with a
second launch where it is split), add + norm, SiLU x up. Products are torch's, in the weights' type.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.attention.paged import PagedCache
from gpu_kernels.attention.paged_decode import paged_decode
from gpu_kernels.fused.add_rmsnorm import add_rmsnorm
from gpu_kernels.fused.rope_cache import rope_cache
from gpu_kernels.fused.sample import sample
from gpu_kernels.fused.silu_mul import silu_mul
from gpu_kernels.graphs import Input, Step


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes, as config.json names them."""

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rope_theta: float = 500000.0
    rms_norm_eps: float = 1e-5


LLAMA_3_2_1B = LlamaShape(2048, 16, 32, 8, 64, 8192, 128256)


@dataclass(frozen=True, slots=True)
class Layer:
    """Weights [out, in]; qkv and gate_up are stacked, so that one product makes all that one input makes."""

    input_norm: Tensor  # [hidden]
    qkv: Tensor  # [(H + 2 G) * D, hidden]
    output: Tensor  # [hidden, H * D]
    post_norm: Tensor  # [hidden]
    gate_up: Tensor  # [2 * intermediate, hidden]
    down: Tensor  # [hidden, intermediate]


@dataclass(frozen=True, slots=True)
class Llama:
    """Weights, pages and angles: what stays in place between steps."""

    shape: LlamaShape
    embedding: Tensor  # [vocabulary, hidden], the head too
    layers: list[Layer]
    norm: Tensor  # [hidden]
    keys: list[Tensor]  # a layer's [num_pages, page_size, G, D]
    values: list[Tensor]
    cos: Tensor  # [positions, D / 2] float32
    sin: Tensor

    @property
    def weight_bytes(self) -> int:
        """Read by every step: the embedding as the head, whole."""
        each = [tensor for layer in self.layers for tensor in (layer.qkv, layer.output, layer.gate_up, layer.down)]
        return sum(tensor.nbytes for tensor in [*each, self.embedding])


def random_llama(
    shape: LlamaShape, *, dtype: torch.dtype, device: str, num_pages: int, page_size: int, seed: int = 0
) -> Llama:
    """Weights of N(0, 1 / in), so that activations keep their size; pages of zeros."""
    generator = torch.Generator(device).manual_seed(seed)

    def weight(rows: int, columns: int) -> Tensor:
        return (torch.randn(rows, columns, generator=generator, device=device) * columns**-0.5).to(dtype)

    def ones() -> Tensor:
        return torch.ones(shape.hidden_size, dtype=dtype, device=device)

    def layer() -> Layer:
        hidden, heads = shape.hidden_size, shape.num_heads * shape.head_dim
        qkv = weight(heads + 2 * shape.num_kv_heads * shape.head_dim, hidden)
        gate_up, down = weight(2 * shape.intermediate_size, hidden), weight(hidden, shape.intermediate_size)
        return Layer(ones(), qkv, weight(hidden, heads), ones(), gate_up, down)

    pages = (num_pages, page_size, shape.num_kv_heads, shape.head_dim)
    caches = [[torch.zeros(pages, dtype=dtype, device=device) for _ in range(shape.num_layers)] for _ in range(2)]
    exponents = torch.arange(0, shape.head_dim, 2, device=device) / shape.head_dim
    angles = torch.outer(torch.arange(num_pages * page_size, device=device), shape.rope_theta**-exponents)
    embedding = weight(shape.vocab_size, shape.hidden_size)
    layers = [layer() for _ in range(shape.num_layers)]
    return Llama(shape, embedding, layers, ones(), *caches, angles.cos(), angles.sin())


def step_inputs(max_pages: int) -> dict[str, Input]:
    """Of `llama_step`; max_pages that a sequence may have. Padding has no slot and no length."""
    return {
        "token": Input((), torch.int64, 0),
        "position": Input((), torch.int64, 0),
        "slot": Input((), torch.int64, -1),
        "block_table": Input((max_pages,), torch.int32, 0),
        "length": Input((), torch.int32, 0),
    }


def llama_logits(model: Llama, rows: dict[str, Tensor]) -> Tensor:
    """[B, vocabulary] of the tokens `rows` names, whose keys and values are written to their slots."""
    shape, eps = model.shape, model.shape.rms_norm_eps
    heads, kv_heads, size = shape.num_heads, shape.num_kv_heads, shape.head_dim
    x, h = model.embedding[rows["token"]], None  # [B, hidden]
    for layer, keys, values in zip(model.layers, model.keys, model.values, strict=True):
        y, _, h = add_rmsnorm(x, layer.input_norm, residual=h, eps=eps)
        projected = (y @ layer.qkv.T).unflatten(1, (-1, size))  # [B, H + 2 G, D]
        query, key, value = projected.split([heads, kv_heads, kv_heads], dim=1)
        places = rows["position"], rows["slot"]
        query = rope_cache(query, key, value, keys, values, *places, model.cos, model.sin)
        cache = PagedCache(keys, values, rows["block_table"], rows["length"])
        attended, _ = paged_decode(query[:, None], cache)  # [B, 1, H, D]
        x = attended.flatten(1) @ layer.output.T
        y, _, h = add_rmsnorm(x, layer.post_norm, residual=h, eps=eps)
        gate, up = (y @ layer.gate_up.T).chunk(2, dim=1)  # [B, intermediate] each
        x = silu_mul(gate, up)[0] @ layer.down.T
    y, _, _ = add_rmsnorm(x, model.norm, residual=h, eps=eps)
    return y @ model.embedding.T


def llama_step(model: Llama) -> Step:
    """The next token [B] int64 of every sequence, greedy: inputs as `step_inputs` says."""
    device = model.embedding.device

    def step(rows: dict[str, Tensor]) -> Tensor:
        logits = llama_logits(model, rows)
        zeros = torch.zeros(len(logits), device=device)  # uniform and temperature
        return sample(logits, zeros, zeros, zeros.int(), zeros + 1)[0]

    return step
