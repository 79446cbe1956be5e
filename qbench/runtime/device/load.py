"""From a source to a model on a device: check, then read, pack and drop one tensor after another."""

from functools import partial

import torch

from gpu_kernels.attention.paged import HEAD_SIZES
from gpu_kernels.decode.linears import DenseLinear, PackedLinear, Stack, named
from gpu_kernels.decode.llama import Layer, Llama, LlamaShape
from gpu_kernels.decode.pages import Rotation
from qbench.run.cache_spec import DEFAULT_CACHE, FULL, CacheSpec, check_cache
from qbench.run.choices import IN_TORCH
from qbench.runtime.attention.rope import inverse_frequencies, rotation
from qbench.runtime.caches.rules import Asked, check
from qbench.runtime.checkpoint import EMBEDDING, FINAL_NORM, HEAD, check_tensors
from qbench.runtime.device.kv import page_dtype
from qbench.runtime.device.model import DeviceModel
from qbench.runtime.device.place import Place, place_of
from qbench.runtime.device.weights import DeviceWeights
from qbench.runtime.kernel_steps import has_attention_step, has_net_step
from qbench.runtime.token_kinds import token_kinds
from quant.kv import KVScheme
from quant.models import ModelConfig, row_names, split_name
from quant.source import Source

FAMILIES = "Llama, Mistral, Qwen2 and Qwen3"
OPS = ("add_rmsnorm", "rope_cache", "paged_prefill", "paged_decode", "silu_mul")  # of every layer


def load_device_model(
    source: Source, device: str, *, spec: CacheSpec | None = None, attention: str | None = None
) -> DeviceModel:
    """The source's model on a device, ready to run.

    device   one of qbench.run.choices.DEVICES, except the CPU
    spec     layout and policy of its caches; None: dynamic and full
    attention  the code that computes it, one of qbench.run.choices.ATTENTIONS; None: gpu_kernels
    raises   InputError for a device that is not here, a config or tensors that do not fit; NotImplementedError for an
             architecture, a head or a KV format that the kernels do not have
    """
    place = place_of(device)
    check_cache(spec or DEFAULT_CACHE, place.name, attention)
    config = ModelConfig.of(source)
    check_family(config, place)
    check_tensors(config, source.tensors)
    kv = KVScheme.of(source.config, config, source.spec)
    check(Asked(config, kv, spec or DEFAULT_CACHE))
    model = _Loader(source, config, place).model(kv, spec or DEFAULT_CACHE, attention)
    model.token_kinds = partial(token_kinds, source.tokenizer)
    return model


def check_family(config: ModelConfig, place: Place) -> None:
    """raises  NotImplementedError for layers that are not computed as Llama's"""
    is_llama = not config.mla and not config.moe and has_attention_step(config) and has_net_step(config)
    has_one_rope = config.local_rope is None and config.rope.changes_at is None
    if not is_llama or not has_one_rope or config.logit_softcap or config.embedding_scale != 1:
        raise NotImplementedError(f"device {place.name}: got {config.architecture.name}, expected {FAMILIES}")
    if config.head_dim not in HEAD_SIZES:
        known = ", ".join(map(str, HEAD_SIZES))
        raise NotImplementedError(f"device {place.name}: got heads of {config.head_dim}, expected one of {known}")


class _Loader:
    """Reads each tensor once."""

    def __init__(self, source: Source, config: ModelConfig, place: Place) -> None:
        self.config, self.place = config, place
        self.weights = DeviceWeights(source.read, place)
        self._rows = row_names(config)

    def model(self, kv: KVScheme | None, spec: CacheSpec, attention: str | None) -> DeviceModel:
        config, weights = self.config, self.weights
        shape = LlamaShape(
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            intermediate_size=config.ffn_size,
            vocab_size=config.vocab_size,
            rms_norm_eps=config.norm_eps,
        )
        # The largest tensors first: the memory for packing them is free again before the layers need memory.
        table, impl = weights.linear(weights.read(f"{EMBEDDING}.weight"))
        assert isinstance(table, DenseLinear | PackedLinear)  # those that have rows
        head = table
        if config.has_head:
            head, impl = weights.linear(weights.read(f"{HEAD}.weight"))
        weights.impls[HEAD if config.has_head else EMBEDDING] = impl
        layers = [self.layer(f"model.layers.{layer}") for layer in range(config.num_layers)]
        norm = weights.vector(f"{FINAL_NORM}.weight")
        llama = Llama(shape, table.rows, layers, norm, head, self.rotation())
        model = DeviceModel(config, llama, self.place, kv, spec, attention)
        # A tied head counts as a linear of its own in all reports of linears.
        model.impls = {HEAD: impl} | {name: one for name, one in weights.impls.items() if name != EMBEDDING}
        model.weight_bytes = weights.weight_bytes
        model.kernels = {op: named(op, norm).removeprefix(op).strip("[]") for op in OPS}
        held = str(page_dtype(kv, self.place)).removeprefix("torch.")
        if attention in IN_TORCH:
            model.kernels |= dict.fromkeys(("paged_prefill", "paged_decode"), attention)
        is_eager = self.place.capture is not None or attention in IN_TORCH or spec.policy != FULL
        model.kernels |= {"keys_values": held, "decode": "eager" if is_eager else "cuda graph"}
        if self.place.torch_name == "cuda":
            torch.cuda.empty_cache()  # memory of packing
        return model

    def layer(self, prefix: str) -> Layer:
        attention, net, vector = f"{prefix}.self_attn", f"{prefix}.mlp", self.weights.vector
        head_norms = [self.vector_if_any(f"{attention}.{name}_norm.weight") for name in "qk"]
        return Layer(
            input_norm=vector(f"{prefix}.input_layernorm.weight"),
            qkv=self.stack(*(f"{attention}.{name}_proj" for name in "qkv")),
            output=self.stack(f"{attention}.o_proj"),
            post_norm=vector(f"{prefix}.post_attention_layernorm.weight"),
            gate_up=self.stack(f"{net}.gate_proj", f"{net}.up_proj"),
            down=self.stack(f"{net}.down_proj"),
            query_norm=head_norms[0],
            key_norm=head_norms[1],
        )

    def stack(self, *names: str) -> Stack:
        return self.weights.stack(names, [self.vector_if_any(f"{name}.bias") for name in names])

    def vector_if_any(self, name: str) -> torch.Tensor | None:
        return self.weights.vector(name) if split_name(name)[0] in self._rows else None

    def rotation(self) -> Rotation:
        config, where = self.config, self.place.torch_name
        frequencies = inverse_frequencies(config.rope, config.rope_dim)
        cos, sin = rotation(frequencies, torch.arange(config.max_positions), config.rope.rotation_scale)
        half = config.rope_dim // 2  # the second half of cos is the first, and sin's carries the sign
        angles = (cos[:, :half].contiguous().to(where), sin[:, half:].contiguous().to(where))
        rules = [config.attention_rule(layer) for layer in range(config.num_layers)]
        return Rotation(*angles, [rule.window or None for rule in rules], rules[0].scale)
