"""The unit that each op uses on this machine for few and for many tokens, by asking the dispatch that runs.

Each op runs on a small weight or cache of zeros, and its kernel reports the instruction set. The path of a linear is
the answer of `PackedLinear.choice`, which its product asks too.
"""

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np

import cpu_kernels
from qbench.kernels.attention import FORMATS, INTEGER_FORMATS, LATENT_FORMATS, RESIDUAL_FORMATS
from qbench.kernels.linear import packed_formats
from quant.formats import IntGroupFormat, get_format
from quant.json_data import JsonData
from quant.kv.latent_codes import LATENT_CODES

TOKENS = (1, 16, 512)  # decode, a batch of sequences, prefill
GROUPED = ("w4g128", "w4g128-asym", "w3g128", "w2g64", "w8")  # the integers of the named recipes
OF_EXPERTS = ("bf16", "f16", "q4_0", "q8_0", "q4_k", "q6_k", "iq4_xs", "w4g128", "w8a8")
ROWS, ROW_SIZE = 16, 256  # one panel; a super-block
NUM_EXPERTS = 16  # of which a token chooses one: 512 tokens are 32 per expert, as with 8 of 128
HEADS, HEAD_DIM, KEYS = 4, 64, 512  # as many query heads share a KV head as in Llama 3
LATENT_HEADS, LATENT_SIZE, ROPE_SIZE = 16, 512, 64  # DeepSeek-V2-Lite
ROWS_SEEN = 4  # latents that every query sees; scalar code takes a second for them
OF_ROWS = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}  # of latents without codes


@dataclass(frozen=True, slots=True)
class Choice(JsonData):
    """op, format: as in the names of `qbench kernels`; path: None if the op has one path only"""

    op: str
    format: str
    tokens: int
    isa: str
    path: str | None = None


def choices() -> Iterator[Choice]:
    """By op, format and number of tokens; in memory of a few MB. raises RuntimeError as every kernel does"""
    formats = [name for name in packed_formats() if not isinstance(get_format(name), IntGroupFormat)]
    return chain(
        chain.from_iterable(map(of_linear, [*formats, *GROUPED])),
        of_llm_int8(),
        chain.from_iterable(map(of_experts, OF_EXPERTS)),
        chain.from_iterable(map(of_attention, FORMATS | INTEGER_FORMATS | RESIDUAL_FORMATS)),
        chain.from_iterable(map(of_latents, LATENT_FORMATS)),
    )


def of_linear(format_name: str) -> Iterator[Choice]:
    weight = zero_weight(format_name, ROWS)
    for count in TOKENS:
        _, path = weight.choice(count)
        weight.matmul(zeros(count, ROW_SIZE))
        yield Choice("linear", format_name, count, weight.last_isa, path)


def of_llm_int8() -> Iterator[Choice]:
    codes, absmax = np.zeros((ROWS, ROW_SIZE), np.int8), np.ones(ROWS, np.float32)
    weight = cpu_kernels.PackedLlmInt8(codes, absmax, np.empty((ROWS, 0), np.float16), np.empty(0, np.int32))
    for count in TOKENS:
        weight.matmul(zeros(count, ROW_SIZE))
        yield Choice("linear", "llm_int8", count, weight.last_isa)


def of_experts(format_name: str) -> Iterator[Choice]:
    """gate, up and down have the same shape, and so the same choice."""
    weights = [zero_weight(format_name, ROW_SIZE)] * NUM_EXPERTS
    experts = cpu_kernels.PackedExperts(weights, weights, weights)
    for count in TOKENS:
        chosen = np.arange(count)[:, None] % NUM_EXPERTS
        experts.forward(zeros(count, ROW_SIZE), chosen, np.ones((count, 1), np.float32))
        (isa,) = set(experts.last_isa)
        yield Choice("experts", format_name, count, isa)


def of_attention(format_name: str) -> Iterator[Choice]:
    """The last tokens of a text, which are appended as their queries attend."""
    scales = (FORMATS | dict.fromkeys((*INTEGER_FORMATS, *RESIDUAL_FORMATS), "given"))[format_name]
    table, ends = np.zeros((1, 1), np.int32), np.array([KEYS])
    for count in TOKENS:
        store = cpu_kernels.KVStore(format_name, 1, KEYS, 1, HEAD_DIM, scales)
        before = zeros(1, 1, KEYS - count, HEAD_DIM)
        if before.size:
            store.append(before, before, table, ends - count)
        q, k = zeros(1, HEADS, count, HEAD_DIM), zeros(1, 1, count, HEAD_DIM)
        store.append_attend(q, k, k, None, None, table, ends, np.empty_like(q), np.empty_like(q), HEAD_DIM**-0.5)
        yield Choice("attention", format_name, count, store.last_isa)


def of_latents(format_name: str) -> Iterator[Choice]:
    """Queries of as many sequences, all of which see the same rows."""
    row, codes = LATENT_SIZE + ROPE_SIZE, LATENT_CODES.get(format_name)
    held = row if codes is None else codes.row_bytes(LATENT_SIZE, ROPE_SIZE)
    kept = np.zeros((1, ROWS_SEEN, held), OF_ROWS.get(format_name, np.uint8))
    for count in TOKENS:
        q, out = zeros(count, LATENT_HEADS, row), np.empty((count, LATENT_HEADS, LATENT_SIZE), np.float32)
        past = np.zeros((count, 1), np.int32), np.full(count, ROWS_SEEN)
        isa = cpu_kernels.attend_latents(q, format_name, kept, *past, out, LATENT_SIZE**-0.5)
        yield Choice("latents", format_name, count, isa)


def zero_weight(format_name: str, num_rows: int) -> cpu_kernels.PackedLinear:
    """[num_rows, ROW_SIZE] over memory of the packed layout, which begins at a page"""
    shape = (num_rows, ROW_SIZE)
    memory = np.frombuffer(mmap.mmap(-1, cpu_kernels.packed_linear_bytes(format_name, shape)), np.uint8)
    return cpu_kernels.PackedLinear(format_name, {"packed": memory}, shape)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)
