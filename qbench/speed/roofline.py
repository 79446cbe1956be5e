"""The roofline: the least time that this machine could need, from bytes that must move and operations that must run."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from qbench.policies import Budget, parse_policy
from qbench.run.choices import CPU, CUDA, DEVICES
from qbench.run.work import SpeedWork
from qbench.speed.operands import operands_of_attention, operands_of_linear
from qbench.speed.units import BF16
from quant.kv import KVFormat
from quant.models import EMBEDDING, HEAD, split_name
from quant.source import TensorInfo


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a decoder that the formulas need."""

    num_layers: int
    num_heads: int
    head_dim: int  # of queries and keys
    value_dim: int
    kv_bytes_per_token: float  # over all layers; with a residual, of an encoded token
    expert_share: float = 1.0  # of a layer's routed experts that one token reads
    windows: tuple[int, ...] = (0,)  # of each layer: keys that a query sees; 0: all
    attention: str = "fp32"  # the operands of attention, as `qbench.speed.units` names them
    residual: KVFormat | None = None  # the KV format, if it keeps recent tokens in float16
    float_bytes_per_token: float = 0.0  # of those tokens, over all layers
    budget: Budget | None = None  # of a policy that keeps or reads so many tokens; None: all

    @classmethod
    def of(cls, model: Any) -> "Shape":
        """That of a loaded model."""
        spec, config = model.cache_spec, model.config
        in_memory = {} if spec.kv_ram is None else {"spec": replace(spec, kv_ram=None, kv_disk=None)}
        cache = model.new_cache(batch=1, capacity=1, **in_memory)
        budget = parse_policy(spec.policy).most_read()
        shape = cls(
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            head_dim=config.head_dim,
            value_dim=config.value_dim,
            kv_bytes_per_token=cache.bytes_per_token,
            expert_share=config.expert_share,
            windows=tuple(rule.window for rule in cache.rules),
            attention=attention_operands(model),
            budget=None if budget is None else budget.in_tokens(cache.bytes_per_token),
        )
        if model.kv is None or not model.kv.format.residual:
            return shape
        sizes = (config.num_kv_heads, config.head_dim, config.value_dim)
        floats = config.num_layers * model.kv.format.float_bytes_per_token(*sizes)
        return replace(shape, residual=model.kv.format, float_bytes_per_token=floats)

    def seen(self, keys: np.ndarray) -> np.ndarray:
        """Keys that a query sees of so many, on average over the layers; the fewest, under a policy."""
        if self.budget is not None:
            keys = np.minimum(keys, [self.budget.of(int(count)) for count in keys])
        return np.mean([np.minimum(keys, window) if window else keys for window in self.windows], axis=0)

    def kv_read(self, num_tokens: np.ndarray) -> np.ndarray:
        """Bytes of the keys and values that a query sees if its sequence holds so many tokens."""
        seen = self.seen(num_tokens)
        if self.residual is None:
            return seen * self.kv_bytes_per_token
        encoded = np.array([self.residual.num_encoded(int(count)) for count in num_tokens])
        floats = np.minimum(seen, num_tokens - encoded)
        return (seen - floats) * self.kv_bytes_per_token + floats * self.float_bytes_per_token


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured on this machine, with the threads of the run."""

    bytes_per_s: float | None  # None: a cache holds all that is read, so memory is no bound
    ops_per_s: dict[str, float]  # of the strongest unit, by operands: fp32, bf16, int16, int8


def attention_operands(model: Any) -> str:
    if any(map(is_on_device, model.impls.values())):
        return BF16
    return operands_of_attention(None if model.kv is None else model.kv.format, model.impl)


def linear_operands(tensors: Mapping[str, TensorInfo], model: Any) -> dict[str, str]:
    """Name of a linear -> its operands, as `qbench.speed.units` names them."""
    if any(map(is_on_device, model.impls.values())):
        return {name: operands_on_device(impl) for name, impl in model.impls.items()}
    formats = {name: info.format for name, info in tensors.items() if len(info.shape) == 2}
    formats.setdefault(HEAD, formats[EMBEDDING])
    return {name.removesuffix(".weight"): operands_of_linear(fmt, model.impl) for name, fmt in formats.items()}


def operands_on_device(impl: str) -> str:
    """The same of an implementation on a GPU, whose function begins with the rounding that its name has."""
    if "-fp8_gemm" in impl:
        return "fp8" if impl.startswith(CUDA) else "fp32"  # the interpreter widens the codes
    return "int8" if "-w8a8_gemm" in impl or "-llm_int8_gemm" in impl else BF16


def is_on_device(impl: str) -> bool:
    """Whether the implementation runs elsewhere than on the CPU."""
    return impl.partition("-")[0] in set(DEVICES) - {CPU}


def read_share(name: str, shape: Shape, tokens: int = 1) -> float:
    """How much of this tensor so many tokens read, on average: all of it, but of routed experts those that are chosen.

    An expert is left alone by all of them with probability (1 - share)^tokens, as if each chose independently.
    """
    _, _, expert = split_name(name)
    return 1.0 if expert is None else 1 - (1 - shape.expert_share) ** tokens


def decode_bytes(tensors: dict[str, TensorInfo], shape: Shape, case: SpeedWork) -> dict[str, float]:
    """Bytes that one decode step must move, on average over the steps of a repetition, term by term.

    Weights count as stored, once for the whole batch: an implementation that unpacks them into something larger moves
    more, so its share drops. Routed experts count if the step's tokens choose them.
    """
    linears = sum(
        info.size_bytes * read_share(name, shape, case.batch)
        for name, info in tensors.items()
        if name != EMBEDDING and len(info.shape) == 2
    )
    norms = sum(info.size_bytes for info in tensors.values() if len(info.shape) == 1)
    embedding = tensors[EMBEDDING]
    kv_read = float(shape.kv_read(case.depth + np.arange(max(case.tg, 1))).mean())
    return {
        "linears": linears if HEAD in tensors else linears + embedding.size_bytes,  # a tied head reads the table
        "embedding_row": case.batch * embedding.size_bytes / embedding.shape[0],
        "norms_and_biases": norms,
        "kv_read": case.batch * kv_read,
        "kv_written": case.batch * (shape.kv_bytes_per_token + shape.float_bytes_per_token),  # float16, later encoded
    }


def mean_length(case: SpeedWork) -> float:
    """Tokens of a sequence in the cache before a decode step: depth .. depth + tg - 1."""
    return case.depth + (case.tg - 1) / 2


def prefill_ops(tensors: dict[str, TensorInfo], shape: Shape, case: SpeedWork) -> dict[str, dict[str, float]]:
    """Operations of one prefill of all sequences, as `forward_ops`."""
    return forward_ops(tensors, shape, case.batch, case.pp, case.depth)


def decode_ops(tensors: dict[str, TensorInfo], shape: Shape, case: SpeedWork) -> dict[str, dict[str, float]]:
    """Operations of one decode step of all sequences, as `forward_ops`."""
    return forward_ops(tensors, shape, case.batch, 1, mean_length(case))


def forward_ops(
    tensors: dict[str, TensorInfo], shape: Shape, batch: int, num_tokens: int, depth: float
) -> dict[str, dict[str, float]]:
    """Operations (a multiply and an add are two) of one forward pass: {"linears": {name: ops}, "attention": {...}}.

    linear     2 N K a token; an expert's for the tokens that choose it; the head only for each sequence's last token
    attention  each query sees depth + its own index + 1 keys, or its window: 2 D for q k^T, 2 V for the sum over v,
               a head
    """
    linears = {
        name.removesuffix(".weight"): 2.0 * info.shape[0] * info.shape[1] * batch * num_tokens * read_share(name, shape)
        for name, info in tensors.items()
        if name not in (EMBEDDING, HEAD) and len(info.shape) == 2
    }
    head = tensors.get(HEAD, tensors[EMBEDDING])
    linears[HEAD.removesuffix(".weight")] = 2.0 * head.shape[0] * head.shape[1] * batch
    # (query, key) pairs that the causal mask leaves
    pairs = batch * float(shape.seen(depth + 1 + np.arange(num_tokens)).sum())
    per_channel = 2.0 * shape.num_layers * shape.num_heads * pairs
    return {
        "linears": linears,
        "attention": {"q_k": per_channel * shape.head_dim, "p_v": per_channel * shape.value_dim},
    }


def least_work(
    tensors: dict[str, TensorInfo], shape: Shape, operands: Mapping[str, str], case: SpeedWork
) -> dict[str, dict[str, float]]:
    """The work on any machine: tg_bytes of a step by term; tg_ops of a step and pp_ops of a prefill by operands.

    operands   as `linear_operands`
    """
    return {
        "tg_bytes": decode_bytes(tensors, shape, case),
        "tg_ops": by_operands(decode_ops(tensors, shape, case), operands, shape.attention),
        "pp_ops": by_operands(prefill_ops(tensors, shape, case), operands, shape.attention),
    }


def by_operands(
    ops: Mapping[str, Mapping[str, float]], operands: Mapping[str, str], attention: str
) -> dict[str, float]:
    sums = {attention: sum(ops["attention"].values())}
    for name, count in ops["linears"].items():
        sums[operands[name]] = sums.get(operands[name], 0.0) + count
    return sums


def least_seconds(work: Mapping[str, Mapping[str, float]], peaks: Peaks) -> dict[str, float]:
    """Least seconds of a prefill, "pp", and of a decode step, "tg", for the `work` of `least_work`."""
    moved = work["tg_bytes"]
    tg_ops_s, pp_ops_s = (
        sum(count / peaks.ops_per_s[operands] for operands, count in work[ops].items()) for ops in ("tg_ops", "pp_ops")
    )
    weights_s, moved_s = (
        0.0 if peaks.bytes_per_s is None else count / peaks.bytes_per_s
        for count in (moved["linears"] + moved["norms_and_biases"], sum(moved.values()))
    )
    return {
        "pp": max(pp_ops_s, weights_s),  # a short prompt is bound by reading the weights once
        "tg": max(tg_ops_s, moved_s),  # a large batch is bound by its operations
    }
