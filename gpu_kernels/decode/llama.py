"""A pass through a Llama: the kernels in the order of a model, over whatever attends; a step of it can be captured.

A layer is five launches and four products: add + norm, rotation with the cache write, attention (with a second launch
if it is split), add + norm, SiLU x up. If a product takes int8 codes, the norm or SiLU before it makes them. Qwen's
heads are normed before their rotation by two launches more.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from gpu_kernels.decode.linears import DenseLinear, Linear, Stack
from gpu_kernels.decode.pages import Attend, Pages, Rotation, attend_to
from gpu_kernels.fused.add_rmsnorm import add_rmsnorm
from gpu_kernels.fused.sample import Operands as Sampling
from gpu_kernels.fused.sample import sample
from gpu_kernels.fused.silu_mul import silu_mul
from gpu_kernels.graphs import Step


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
    """qkv gives query, key and value; gate_up gate and up; output and down one result each."""

    input_norm: Tensor  # [hidden]
    qkv: Stack
    output: Stack
    post_norm: Tensor  # [hidden]
    gate_up: Stack
    down: Stack
    query_norm: Tensor | None = None  # [head_dim]
    key_norm: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Llama:
    """Weights and angles, which stay in place between passes.

    embed  token ids [T] -> [T, hidden]
    """

    shape: LlamaShape
    embed: Callable[[Tensor], Tensor]
    layers: list[Layer]
    norm: Tensor  # [hidden]
    head: Linear
    rotation: Rotation

    @property
    def step_bytes(self) -> int:
        """Bytes of weights that every step reads: the products', the head's among them."""
        stacks = [stack for layer in self.layers for stack in (layer.qkv, layer.output, layer.gate_up, layer.down)]
        return sum(stack.size_bytes for stack in stacks) + self.head.size_bytes


def llama_layers(model: Llama, tokens: Tensor, attend: Attend) -> tuple[Tensor, Tensor | None]:
    """(x, h) [T, hidden]: the addend of the last layer, and the residual. tokens [T]"""
    eps, size = model.shape.rms_norm_eps, model.shape.head_dim
    x, h = model.embed(tokens), None  # [T, hidden]; h is None before the first layer
    for number, layer in enumerate(model.layers):
        y, scale, h = add_rmsnorm(x, layer.input_norm, residual=h, eps=eps, quantize=layer.qkv.codes)
        query, key, value = (part.unflatten(1, (-1, size)) for part in layer.qkv(y, scale))  # [T, H or G, D]
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = _head_norm(query, layer.query_norm, eps), _head_norm(key, layer.key_norm, eps)
        (x,) = layer.output(attend(number, query, key, value).flatten(1))
        y, scale, h = add_rmsnorm(x, layer.post_norm, residual=h, eps=eps, quantize=layer.gate_up.codes)
        (x,) = layer.down(*silu_mul(*layer.gate_up(y, scale), quantize=layer.down.codes))
    return x, h


def llama_head(model: Llama, x: Tensor, h: Tensor | None) -> Tensor:
    """Logits [T, vocabulary] of the result of `llama_layers`, or of rows of it."""
    return model.head(add_rmsnorm(x, model.norm, residual=h, eps=model.shape.rms_norm_eps)[0])


def llama_logits(model: Llama, pages: Pages, rows: dict[str, Tensor]) -> Tensor:
    """[B, vocabulary] of the tokens `rows` names (`pages.step_inputs`), whose keys and values go to their slots."""
    return llama_head(model, *llama_layers(model, rows["token"], attend_to(pages, model.rotation, rows)))


def llama_step(model: Llama, pages: Pages) -> Step:
    """The next token [B] int64 of every sequence, greedy: inputs as `pages.step_inputs` says."""

    def step(rows: dict[str, Tensor]) -> Tensor:
        logits = llama_logits(model, pages, rows)
        zeros = torch.zeros(len(logits), device=logits.device)  # uniform and temperature
        return sample(Sampling(logits, zeros, zeros, zeros.int(), zeros + 1))[0]

    return step


def random_llama(
    shape: LlamaShape, *, dtype: torch.dtype, device: str, positions: int, seed: int = 0, has_gemv: bool = False
) -> Llama:
    """Dense weights of N(0, 1 / in), so that activations keep their size; the head is the embedding."""
    generator = torch.Generator(device).manual_seed(seed)

    def linear(columns: int, rows: int) -> DenseLinear:
        weight = torch.randn(rows, columns, generator=generator, device=device) * columns**-0.5
        return DenseLinear(weight.to(dtype), has_gemv=has_gemv)

    def stack(columns: int, *rows: int) -> Stack:
        return Stack([(linear(columns, sum(rows)), rows)])

    def ones() -> Tensor:
        return torch.ones(shape.hidden_size, dtype=dtype, device=device)

    def layer() -> Layer:
        hidden, heads, keys = (shape.hidden_size, *(n * shape.head_dim for n in (shape.num_heads, shape.num_kv_heads)))
        qkv, inner = stack(hidden, heads, keys, keys), shape.intermediate_size
        return Layer(ones(), qkv, stack(heads, hidden), ones(), stack(hidden, inner, inner), stack(inner, hidden))

    exponents = torch.arange(0, shape.head_dim, 2, device=device) / shape.head_dim
    angles = torch.outer(torch.arange(positions, device=device), shape.rope_theta**-exponents)
    head = linear(shape.hidden_size, shape.vocab_size)
    layers = [layer() for _ in range(shape.num_layers)]
    rotation = Rotation(angles.cos(), angles.sin(), [None] * shape.num_layers)
    return Llama(shape, head.rows, layers, ones(), head, rotation)


def _head_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [T, H, D], each head by itself"""
    return add_rmsnorm(x.reshape(-1, x.shape[-1]), weight, eps=eps)[0].view(x.shape)
