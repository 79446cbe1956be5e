"""Stores of keys and values for tests: filled through a shuffled block table, poisoned at slots without a token."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

import cpu_kernels
from cpu_kernels.attention import Attended, as_multiplied_ref, attention_ref, multiplies_in
from cpu_kernels.attention_bound import attention_bound
from qbench.kernels.attention import LOG2_E, ROUND_QUERIES

FLOATS = ("f32", "f16", "bf16")
FLOAT8 = ("e4m3", "e5m2")
INTEGERS = ("int8", "int4")
FORMATS = (*FLOATS, *FLOAT8, *INTEGERS)
SPARE_SLOTS = 5  # of a mass array, behind the last token


@dataclass
class Filled:
    """A store that holds k and v, and their decoded values."""

    store: cpu_kernels.KVStore
    table: np.ndarray  # [B, pages] int32
    lengths: np.ndarray  # [B] int64
    k: np.ndarray  # [B, G, S, D] float32
    v: np.ndarray

    def attend(self, q: np.ndarray, isa: str | None = None, window: int = 0, lengths=None) -> np.ndarray:
        out = np.full_like(q, np.nan)
        lengths = self.lengths if lengths is None else lengths
        self.store.attend(q, self.table, lengths, out, softmax_scale(q), window=window, isa=isa)
        assert isa is None or self.store.last_isa == isa
        return out

    def observe(self, q: np.ndarray, isa: str | None = None, **options) -> Attended:
        """The output, lse and mass, which has SPARE_SLOTS more slots than a sequence has tokens."""
        out, lse, mass = np.full_like(q, np.nan), np.full(q.shape[:3], np.nan, np.float32), self.empty_mass()
        past = (self.table, self.lengths, out, softmax_scale(q))
        self.store.attend(q, *past, isa=isa, lse=lse, mass=mass, **options)
        assert isa is None or self.store.last_isa == isa
        return Attended(out, lse, mass)

    def key_mass(self, q: np.ndarray, lse: np.ndarray, isa: str | None = None, **options) -> np.ndarray:
        mass = self.empty_mass()
        self.store.key_mass(q, self.table, self.lengths, lse, mass, softmax_scale(q), isa=isa, **options)
        assert isa is None or self.store.last_isa == isa
        return mass

    def empty_mass(self) -> np.ndarray:
        return np.full((len(self.table), self.k.shape[1], self.k.shape[2] + SPARE_SLOTS), np.nan, np.float32)


def softmax_scale(q: np.ndarray) -> float:
    return q.shape[-1] ** -0.5


def normal(seed: int, *shape: int) -> np.ndarray:
    return drawn(seed, shape).copy()


@lru_cache(64)  # each instruction set asks for the same in turn
def drawn(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def scales_of(name: str) -> str:
    return "per_head" if name in FLOAT8 else "given"


def filled(
    name: str,
    k: np.ndarray,
    v: np.ndarray,
    page_size: int = 32,
    scales: str | None = None,
    isa: str | None = None,
    exact: bool = False,
) -> Filled:
    """k, v [B, G, S, D] in a store whose pages are out of order, after NaN in every other place of it."""
    batch, num_heads, length, head_dim = k.shape
    pages = -(-length // page_size)
    num_pages = batch * pages + 3
    sizes = (num_pages, page_size, num_heads, head_dim)
    store = cpu_kernels.KVStore(name, *sizes, scales or scales_of(name), exact=exact)
    whole = np.arange(num_pages, dtype=np.int32)[None]
    nothing = np.full((1, num_heads, num_pages * page_size, head_dim), np.nan, np.float32)
    store.append(nothing, nothing, whole, np.array([num_pages * page_size]))
    table = np.full((batch, pages + 1), 10**8, np.int32)  # the last is never needed
    table[:, :pages] = np.random.default_rng(length).permutation(num_pages)[: batch * pages].reshape(batch, pages)
    lengths = np.full(batch, length)
    store.append(k, v, table, lengths, isa=isa)
    kept_k, kept_v = np.empty_like(k), np.empty_like(v)
    store.read(table, lengths, kept_k, kept_v)
    return Filled(store, table, lengths, kept_k, kept_v)


def expected_attention(
    held: Filled, q: np.ndarray, window: int = 0, isa: str | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The oracle's result and how far the kernel's may be from it: both [B, H, T, D]. isa None: the chosen one."""
    given = (rounded_queries(held, q, isa), *multiplied(held, q, isa), softmax_scale(q), window)
    return attention_ref(*given).out, attention_bound(*given, arithmetic(held, q, isa))


def rounded_queries(held: Filled, q: np.ndarray, isa: str | None) -> np.ndarray:
    """As they are multiplied with the store's keys."""
    return ROUND_QUERIES[arithmetic(held, q, isa)](q, np.float32(softmax_scale(q)) * LOG2_E)


def multiplied(held: Filled, q: np.ndarray, isa: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Keys and values as they are multiplied with these queries."""
    name, how = held.store.format, arithmetic(held, q, isa)
    return as_multiplied_ref(held.k, name, how), as_multiplied_ref(held.v, name, how)


def arithmetic(held: Filled, q: np.ndarray, isa: str | None) -> str:
    """As `multiplies_in` names it, for queries [B, H, T, D] and a kernel that is forced."""
    return multiplies_in(held.store.format, q.shape[2], q.shape[1] // held.k.shape[1], isa)
