"""Attention over stored keys and values in every format, in decode and prefill, and over latents that heads share."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

import cpu_kernels
from cpu_kernels.attention import (
    as_multiplied_ref,
    attend_latents,
    attention_ref,
    bf16_queries_ref,
    latent_attention_ref,
    latents_as_multiplied_ref,
    multiplies_in,
    multiplies_latents_in,
    round_queries_ref,
    sink_attention_ref,
)
from cpu_kernels.attention_bound import (
    ChannelGroups,
    attention_bound,
    channel_scores_of,
    latent_bound,
    seen_tokens,
    sink_attention_bound,
    weighted_bound,
)
from qbench.kernels.case import Deviation, Kernel, Problem, deviation
from quant.kv import KV_FORMATS
from quant.kv.latent_codes import LATENT_CODES

# format -> where the scales of float8 come from
FORMATS = {"f32": "given", "f16": "given", "bf16": "given", "e4m3": "per_head", "e5m2": "per_head"}
INTEGER_FORMATS = {"int8": "given", "int4": "given"}
# format -> KV format of quant.kv, and the largest code
RESIDUAL_FORMATS, RESIDUAL_LEVELS = {"kivi4": "kv-kivi-4", "kivi2": "kv-kivi-2"}, {"kivi4": 15, "kivi2": 3}
FLOAT8 = ("e4m3", "e5m2")
# Rounding of q in a kernel before it multiplies
ROUND_QUERIES = {"fp32": lambda q, factor: q, "int16": round_queries_ref, "bf16": bf16_queries_ref}
ISAS = frozenset({"scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx"})
RESIDUAL_SHAPES = ((3, 1, 1, 400), (6, 2, 7, 1100))  # whose queries see the same tokens encoded
SHAPES = ((3, 1, 1, 1), (6, 2, 1, 1100), (6, 2, 67, 131))  # query heads, kv heads, queries, tokens
HEAD_DIM, PAGE = 64, 32
SOFTMAX_SCALE = HEAD_DIM**-0.5
WINDOW, SINKS = 40, 17
VARLEN = ((5, 131), (1, 40), (3, 64))  # queries and tokens of each sequence
GIVEN = (2.0**-6, 0.013)  # scales of float8 keys and values that are given
LATENT_SIZE, ROPE_SIZE = 512, 64
LATENT_FORMATS = ("f32", "f16", "bf16", "fp8", "int8", "int4")
LATENT_SHAPES = ((3, 17), (16, 300))  # heads, tokens
LOG2_E = np.float32(1.44269504)
SEED = 31


def attention() -> list[Kernel]:
    return [Kernel("attention", problems)]


def random_inputs(
    rng: np.random.Generator, num_heads: int, num_kv_heads: int, queries: int, tokens: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q [1, H, Q, D], k and v [1, G, T, D] float32"""
    q = rng.standard_normal((1, num_heads, queries, HEAD_DIM)).astype(np.float32)
    k, v = rng.standard_normal((2, 1, num_kv_heads, tokens, HEAD_DIM)).astype(np.float32)
    return q, k, v


def problems() -> Iterator[Problem]:
    rng = np.random.default_rng(SEED)
    inputs = [random_inputs(rng, *shape) for shape in SHAPES]
    for qkv, name in product(inputs, FORMATS | INTEGER_FORMATS):
        yield from of_format(name, *qkv)
    q, k, v = inputs[-1]
    for name in FORMATS | INTEGER_FORMATS:
        yield from of_format(name, q, k, v, window=WINDOW)
        yield from of_format(name, q, k, v, window=WINDOW, num_sinks=SINKS)
        yield from of_format(name, q[:, :, : sum(new for new, _ in VARLEN)], k, v, varlen=VARLEN)
    for name, scales in product(FLOAT8, ("per_tensor", "given")):
        yield from of_format(name, q, k, v, scales)
    for shape, name in product(RESIDUAL_SHAPES, RESIDUAL_FORMATS):
        yield residual_problem(name, *random_inputs(rng, *shape))
    for num_heads, tokens in LATENT_SHAPES:
        q = rng.standard_normal((1, num_heads, LATENT_SIZE + ROPE_SIZE)).astype(np.float32)
        latents = rng.standard_normal((tokens, LATENT_SIZE + ROPE_SIZE)).astype(np.float32)
        for name in LATENT_FORMATS:
            by_isa = {isa: multiplies_latents_in(name, isa) for isa in ISAS}
            for arithmetic in sorted(set(by_isa.values())):
                others = frozenset(isa for isa in ISAS if by_isa[isa] != arithmetic)
                yield latent_problem(name, q, latents, arithmetic, others)


def residual_problem(name: str, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Problem:
    """The last queries of a text whose first tokens are encoded together, and whose last ones are float16."""
    tokens, table, ends = k.shape[2], np.zeros((1, 1), np.int32), np.array([k.shape[2]])

    def run(isa: str) -> tuple[np.ndarray, str]:
        store = cpu_kernels.KVStore(name, 1, -(-tokens // PAGE) * PAGE, k.shape[1], HEAD_DIM)
        store.append(k, v, table, ends, isa=isa)
        out = np.full_like(q, np.nan)
        store.attend(q, table, ends, out, SOFTMAX_SCALE, isa=isa)
        return out, store.last_isa

    def check(out: np.ndarray) -> Deviation:
        kept_k, kept_v, groups = kept_residual(name, k, v)
        scores = channel_scores_of(q, kept_k, SOFTMAX_SCALE, seen_tokens(q.shape[2], tokens), groups)
        expected = attention_ref(q, kept_k, kept_v, SOFTMAX_SCALE).out
        return deviation(out, expected, weighted_bound(scores, kept_v, "int16"))

    about = f"{name} {q.shape[1]} heads on {k.shape[1]}, {q.shape[2]} queries of {tokens} tokens"
    return Problem(about, run, check)


def kept_residual(name: str, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray, ChannelGroups]:
    """Keys and values as quant's codecs read them, and the scales of the keys that are encoded."""
    import torch

    fmt = KV_FORMATS[RESIDUAL_FORMATS[name]]
    encoded = fmt.num_encoded(k.shape[2])
    halves = [torch.from_numpy(x).half().float() for x in (k, v)]
    parts = fmt.keys.encode(halves[0][:, :, :encoded])
    for codec, x in zip((fmt.keys, fmt.values), halves, strict=True):
        x[:, :, :encoded] = codec.round_trip(x[:, :, :encoded])
    scale, minimum = (parts[part].float().numpy() for part in ("scale", "minimum"))
    return halves[0].numpy(), halves[1].numpy(), ChannelGroups(scale, minimum, RESIDUAL_LEVELS[name])


def of_format(
    name: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, scales: str | None = None, **seen
) -> Iterator[Problem]:
    """In each arithmetic that instruction sets have for the format."""
    scales = scales or ("per_head" if name in FLOAT8 else "given")
    call = partial(Call, name, scales, q, k, v, **seen)
    queries = [new for new, _ in seen.get("varlen", ())] or [q.shape[2]]
    by_isa = {isa: {multiplies_in(name, new, q.shape[1] // k.shape[1], isa) for new in queries} for isa in ISAS}
    for arithmetic in sorted(set().union(*by_isa.values())):
        yield call(arithmetic).problem(frozenset(isa for isa in ISAS if arithmetic not in by_isa[isa]))


def latent_problem(name: str, q: np.ndarray, latents: np.ndarray, arithmetic: str, not_for: frozenset[str]) -> Problem:
    """q [1, H, 576]; latents [S, 576] float32, kept in a format and read back by torch and quant's codec"""
    kept, rows = kept_latents(name, latents)
    tokens, softmax_scale = len(latents), (LATENT_SIZE + ROPE_SIZE) ** -0.5
    table, ends = np.zeros((1, 1), np.int32), np.array([tokens])

    def run(isa: str) -> tuple[np.ndarray, str]:
        out = np.full((1, q.shape[1], LATENT_SIZE), np.nan, np.float32)
        return out, attend_latents(q, name, kept[None], table, ends, out, softmax_scale, isa=isa)

    def check(out: np.ndarray) -> Deviation:
        taken, multiplied = latents_as_multiplied_ref(q, rows[None], softmax_scale, arithmetic)
        expected = latent_attention_ref(taken, multiplied, softmax_scale, LATENT_SIZE)
        return deviation(out, expected, latent_bound(taken, multiplied, softmax_scale, LATENT_SIZE, arithmetic))

    return Problem(f"{name} latents, {q.shape[1]} heads, {tokens} tokens, {arithmetic}", run, check, not_for)


def kept_latents(name: str, latents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As they are kept, and as they are read: [S, 576] float32"""
    import torch

    x = torch.from_numpy(latents)
    if name in LATENT_CODES:
        data = LATENT_CODES[name].encode(x[:, :LATENT_SIZE], x[:, LATENT_SIZE:])
        return data.numpy(), torch.cat(LATENT_CODES[name].decode(data, LATENT_SIZE), -1).numpy()
    kept = x.to({"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[name])
    codes = kept.view(torch.uint16) if name == "bf16" else kept
    return codes.numpy(), kept.float().numpy()


@dataclass(frozen=True, slots=True)
class Call:
    """Queries over the tokens of one sequence, kept in a format.

    arithmetic  as cpu_kernels.attention.multiplies_in names it
    window      tokens that a query sees; 0: all before it
    num_sinks   first tokens that it sees, too, as -q meets their keys
    varlen      (queries, tokens) of each of several sequences, which share a prefix; (): all queries are of one
    """

    format: str
    scales: str
    q: np.ndarray  # [1, H, T, D] float32
    k: np.ndarray  # [1, G, S, D] float32
    v: np.ndarray
    arithmetic: str
    window: int = 0
    num_sinks: int = 0
    varlen: tuple[tuple[int, int], ...] = ()

    def problem(self, not_for: frozenset[str] = frozenset()) -> Problem:
        _, num_heads, queries, _ = self.q.shape
        about = f"{self.format} {num_heads} heads on {self.k.shape[1]}, {queries} queries of {self.k.shape[2]} tokens"
        about += f", scales {self.scales}" if self.format in FLOAT8 else ""
        about += f", window {self.window}" if self.window else ""
        about += f", {self.num_sinks} sinks" if self.num_sinks else ""
        about += f", of {len(self.varlen)} sequences" if self.varlen else ""
        return Problem(about, self.run, self.check, not_for)

    def stored(self, isa: str) -> tuple[cpu_kernels.KVStore, np.ndarray]:
        """A store that holds k and v in pages out of order, and its table."""
        num_kv_heads, tokens = self.k.shape[1:3]
        pages = -(-tokens // PAGE)
        table = np.arange(pages, dtype=np.int32)[None, ::-1].copy()
        given = [np.full(1, scale, np.float32) for scale in GIVEN] if self.has_given_scales else []
        store = cpu_kernels.KVStore(self.format, pages, PAGE, num_kv_heads, HEAD_DIM, self.scales, *given)
        store.append(self.k, self.v, table, np.array([tokens]), isa=isa)
        return store, table

    @property
    def has_given_scales(self) -> bool:
        return self.format in FLOAT8 and self.scales == "given"

    @property
    def sequences(self) -> tuple[tuple[int, int], ...]:
        return self.varlen or ((self.q.shape[2], self.k.shape[2]),)

    def run(self, isa: str) -> tuple[np.ndarray, str]:
        (store, table), out = self.stored(isa), np.full_like(self.q, np.nan)
        new, ends = np.array(self.sequences).T
        cu_seqlens = np.concatenate(([0], np.cumsum(new))) if self.varlen else None
        sinks = {"sinks": self.num_sinks, "sink_q": -self.q} if self.num_sinks else {}
        past = np.repeat(table, len(new), 0), ends.copy()
        store.attend(self.q, *past, out, SOFTMAX_SCALE, self.window, cu_seqlens, isa=isa, **sinks)
        return out, store.last_isa

    def check(self, out: np.ndarray) -> Deviation:
        (store, table), kept_k, kept_v = self.stored("scalar"), np.empty_like(self.k), np.empty_like(self.v)
        store.read(table, np.array([self.k.shape[2]]), kept_k, kept_v)
        kept_k, kept_v = (as_multiplied_ref(x, self.format, self.arithmetic) for x in (kept_k, kept_v))
        factor = np.float32(SOFTMAX_SCALE) * LOG2_E * np.float32(GIVEN[0] if self.has_given_scales else 1)
        q, results = ROUND_QUERIES[self.arithmetic](self.q, factor), []
        for (new, length), end in zip(self.sequences, np.cumsum([new for new, _ in self.sequences]), strict=True):
            its, past = q[:, :, end - new : end], (kept_k[:, :, :length], kept_v[:, :, :length], SOFTMAX_SCALE)
            if self.num_sinks:
                given = (its, -its, *past, self.window, self.num_sinks)
                results.append((sink_attention_ref(*given).out, sink_attention_bound(*given, self.arithmetic)))
            else:
                given = (its, *past, self.window)
                results.append((attention_ref(*given).out, attention_bound(*given, self.arithmetic)))
        expected, bound = (np.concatenate(parts, 2) for parts in zip(*results, strict=True))
        return deviation(out, expected, bound)
