"""Absorbed latent attention against its definition, in every format and instruction set."""

import numpy as np
import pytest
import torch
from support.attention import normal
from support.close import assert_close
from support.spoilers import assert_tells
from support.threads import assert_threads_change_nothing

import cpu_kernels
from cpu_kernels.attention import (
    Attended,
    attend_latents,
    attention_ref,
    latent_attention_ref,
    latents_as_multiplied_ref,
    multiplies_latents_in,
)
from cpu_kernels.attention_bound import latent_bound, lse_bound, mass_bound, scores_of, seen_tokens
from quant.kv.latent_codes import LATENT_CODES

OP = "attention"
K, V = 576, 512  # kv_lora_rank 512 and 64 rotated channels
SCALE = 192**-0.5
FORMATS = ("f32", "f16", "bf16", *LATENT_CODES)


def encoded(name: str, rows: np.ndarray, rank: int = V) -> tuple[np.ndarray, np.ndarray]:
    """Rows [..., K] in a format, and their decoded values."""
    x = torch.from_numpy(rows)
    if name in LATENT_CODES:
        codes = LATENT_CODES[name]
        data = codes.encode(x[..., :rank], x[..., rank:])
        return data.numpy(), torch.cat(codes.decode(data, rank), -1).numpy()
    if name == "bf16":
        return x.bfloat16().view(torch.uint16).numpy(), x.bfloat16().float().numpy()
    kept = rows.astype(np.float16 if name == "f16" else np.float32)
    return kept, kept.astype(np.float32)


class Paged:
    """Latents [B, S, K] in shuffled pages with NaN wherever no token is."""

    def __init__(self, name: str, latents: np.ndarray, page_size: int = 16, rank: int = V) -> None:
        batch, length, width = latents.shape
        pages = -(-length // page_size)
        num_pages = batch * pages + 2
        self.name = name
        order = np.random.default_rng(length).permutation(num_pages)[: batch * pages]
        self.table = np.full((batch, pages + 1), -7, np.int32)
        self.table[:, :pages] = order.reshape(batch, pages)
        rows = np.full((num_pages, page_size, width), np.nan, np.float32)
        for b, t in np.ndindex(batch, length):
            rows[self.table[b, t // page_size], t % page_size] = latents[b, t]
        self.rows, _ = encoded(name, rows, rank)
        self.kept = encoded(name, latents, rank)[1]
        self.lengths = np.full(batch, length)

    def attend(
        self, q: np.ndarray, isa: str | None = None, value_dim: int = V, window: int = 0, exact: bool = False
    ) -> np.ndarray:
        out = np.full((*q.shape[:2], value_dim), np.nan, np.float32)
        ran = attend_latents(
            q, self.name, self.rows, self.table, self.lengths, out, SCALE, window, isa=isa, exact=exact
        )
        assert isa is None or ran == isa
        return out

    def observe(self, q: np.ndarray, isa: str | None = None, window: int = 0) -> Attended:
        """out [B, H, V], lse [B, H] and mass [B, S], with 5 slots behind the last token"""
        out, lse = np.full((*q.shape[:2], V), np.nan, np.float32), np.full(q.shape[:2], np.nan, np.float32)
        mass = np.full((len(q), self.kept.shape[1] + 5), np.nan, np.float32)
        past = (self.table, self.lengths, out, SCALE, window)
        attend_latents(q, self.name, self.rows, *past, isa=isa, lse=lse, mass=mass)
        return Attended(out, lse, mass)


def expected_latents(
    q: np.ndarray, kept: np.ndarray, arithmetic: str, value_dim: int = V
) -> tuple[np.ndarray, np.ndarray]:
    """The oracle's result and how far the kernel's may be from it: both [B, H, value_dim]."""
    q, kept = latents_as_multiplied_ref(q, kept, SCALE, arithmetic)
    return latent_attention_ref(q, kept, SCALE, value_dim), latent_bound(q, kept, SCALE, value_dim, arithmetic)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("heads, length", [(16, 1), (3, 3), (16, 63), (17, 131), (40, 64), (128, 9), (4, 700)])
def test_matches_the_definition(isa, name, heads, length):
    paged, q = Paged(name, normal(1, 2, length, K)), normal(2, 2, heads, K)
    assert_tells(paged.attend(q, isa), *expected_latents(q, paged.kept, multiplies_latents_in(name, isa)))


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("width, value_dim", [(128, 128), (144, 128), (320, 256)])
def test_other_ranks(isa, name, width, value_dim):
    paged, q = Paged(name, normal(1, 1, 37, width), rank=value_dim), normal(2, 1, 5, width)
    expected = expected_latents(q, paged.kept, multiplies_latents_in(name, isa), value_dim)
    assert_tells(paged.attend(q, isa, value_dim), *expected)


@pytest.mark.parametrize("window", [1, 5, 255, 256, 300, 700, 5000])
def test_a_window_reads_nothing_before_it(isa, window):
    paged, q = Paged("f16", normal(1, 2, 700, K)), normal(2, 2, 3, K)
    everything = paged.attend(q, isa)
    paged.table[:, : max(0, 700 - window) // 16] = -1
    out = paged.attend(q, isa, window=window)
    assert_tells(out, *expected_latents(q, paged.kept[:, -window:], multiplies_latents_in("f16", isa)))
    assert np.array_equal(out, everything) == (window >= 700)


@pytest.mark.parametrize("window", [0, 9])
@pytest.mark.parametrize("heads", [1, 3, 4, 8, 16, 20])
def test_tokens_that_share_registers_give_the_same_result_separately(isa, heads, window):
    """Tokens of two sequences, over the border of two parts, and from the first token on."""
    paged = Paged("f16", normal(1, 2, 300, K))
    for ends in (np.arange(1, 20), np.arange(245, 270)):
        count = len(ends)
        paged.table, table = np.repeat(paged.table, count, axis=0), paged.table
        paged.lengths, q = np.tile(ends, 2), normal(2, 2 * count, heads, K)
        together = paged.attend(q, isa, window=window)
        lengths, rows = paged.lengths, paged.table
        for i in range(2 * count):
            paged.table, paged.lengths = rows[i : i + 1], lengths[i : i + 1]
            assert_close(paged.attend(q[i : i + 1], isa, window=window), together[i : i + 1])
        seen = paged.kept[0, max(0, ends[3] - window) if window else 0 : ends[3]][None]
        assert_tells(together[3:4], *expected_latents(q[3:4], seen, multiplies_latents_in("f16", isa)))
        paged.table = table


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("window", [0, 40], ids="window={}".format)
@pytest.mark.parametrize("heads, length", [(3, 1), (16, 131), (40, 700)])
def test_lse_and_mass(isa, name, window, heads, length):
    paged, q = Paged(name, normal(1, 2, length, K)), normal(2, 2, heads, K)
    got = paged.observe(q, isa, window)
    arithmetic = multiplies_latents_in(name, isa)
    taken, rows = latents_as_multiplied_ref(q[:, :, None], paged.kept[:, None], SCALE, arithmetic)  # [B, 1, S, K]
    expected = attention_ref(taken, rows, rows, SCALE, window)
    scores = scores_of(taken, rows, SCALE, seen_tokens(1, length, window), arithmetic)
    assert_close(got.out, paged.attend(q, isa, window=window))
    assert_close(got.lse, expected.lse[..., 0], atol=lse_bound(scores)[..., 0])
    assert_tells(got.mass[:, :length], expected.mass[:, 0], mass_bound(scores, 1)[:, 0])
    is_seen = expected.mass[:, 0] > 0
    assert_close(got.mass[:, :length][~is_seen], np.zeros((~is_seen).sum()))
    assert_close(got.mass[:, length:], np.zeros((2, 5)))


@pytest.mark.parametrize("window", [0, 9])
@pytest.mark.parametrize("heads", [3, 4, 16])
def test_tokens_that_share_registers_have_the_same_mass_separately(isa, heads, window):
    paged, ends = Paged("f16", normal(1, 1, 300, K)), np.arange(245, 270)
    paged.table, q = np.repeat(paged.table, len(ends), axis=0), normal(2, len(ends), heads, K)
    paged.lengths = ends
    together, rows = paged.observe(q, isa, window), paged.table
    for i in range(len(ends)):
        paged.table, paged.lengths = rows[i : i + 1], ends[i : i + 1]
        alone = paged.observe(q[i : i + 1], isa, window)
        assert_close(alone.lse, together.lse[i : i + 1])
        assert_close(alone.mass, together.mass[i : i + 1])


def test_nan_of_a_row_reaches_only_its_queries():
    latents = normal(1, 2, 100, K)
    latents[1, 70, 3] = np.nan
    got = Paged("f32", latents).observe(normal(2, 2, 3, K))
    assert np.isfinite(got.mass[0]).all() and np.isfinite(got.lse[0]).all()
    assert np.isnan(got.mass[1, :100]).all() and np.isnan(got.lse[1]).all()


needs_tiles = pytest.mark.skipif("amx" not in cpu_kernels.features(), reason="no AMX")


@needs_tiles
@pytest.mark.parametrize("name", FORMATS)
def test_exact_takes_no_tiles(name, monkeypatch):
    paged, q = Paged(name, normal(1, 1, 300, K)), normal(2, 1, 16, K)
    exact = paged.attend(q, "amx", exact=True)
    assert_close(exact, paged.attend(q, "avx512_bf16"))
    assert np.array_equal(exact, paged.attend(q, "amx")) == (name == "f32")
    monkeypatch.setenv("QBENCH_F16_COMPUTE", "float32")
    assert np.array_equal(exact, paged.attend(q, "amx")) == (name in ("f32", "f16"))


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("channel", [3, V + 5])
def test_not_finite_rows_reach_only_queries_that_see_them(isa, name, value, channel):
    latents, q = normal(1, 1, 20, K), normal(2, 20, 3, K)
    latents[0, 7, channel] = value
    paged = Paged(name, latents)
    paged.table, paged.lengths = np.repeat(paged.table, 20, axis=0), np.arange(1, 21)
    got, table = paged.observe(q, isa), paged.table
    assert np.isfinite(got.out[:7]).all() and np.isfinite(got.mass[:7]).all()
    for i in range(20):
        paged.table, paged.lengths = table[i : i + 1], np.array([i + 1])
        alone = paged.observe(q[i : i + 1], isa)
        assert_close(got.out[i : i + 1], alone.out)
        assert_close(got.lse[i : i + 1], alone.lse)
        assert_close(got.mass[i : i + 1], alone.mass)


@pytest.mark.parametrize("exact", [False, True])
def test_many_queries_match_the_definition(isa, exact):
    """More tasks than are done at once, with ends in several parts."""
    paged, q = Paged("bf16", normal(1, 1, 1100, K)), normal(2, 200, 16, K)
    paged.table, paged.lengths = np.repeat(paged.table, 200, axis=0), np.arange(901, 1101)
    out, arithmetic = paged.attend(q, isa, exact=exact), "fp32" if exact else multiplies_latents_in("bf16", isa)
    for i in (0, 122, 123, 124, 199):
        expected = expected_latents(q[i : i + 1], paged.kept[:, : 901 + i], arithmetic)
        assert_tells(out[i : i + 1], *expected)


def test_axes_of_one_entry_may_have_any_stride():
    """As a torch tensor's or a slice's first axis may."""
    rows, q = normal(1, 40, 9, 16, K)[20:21, 3], normal(2, 8, 1, K)[::4][1:2].transpose(1, 0, 2)
    assert rows.strides[0] != rows[0].nbytes
    out = np.empty((1, 1, V), np.float32)
    attend_latents(q, "f32", rows, np.zeros((1, 1), np.int32), np.array([16]), out, SCALE)
    assert_tells(out, *expected_latents(q, rows, "fp32"))


def test_threads_and_batch_change_nothing():
    paged, q = Paged("bf16", normal(1, 3, 600, K)), normal(2, 3, 16, K)
    paged.lengths = np.array([600, 17, 300])
    together = assert_threads_change_nothing((1, 2, 3), lambda: paged.observe(q))
    for b in range(3):
        out = np.empty((1, 16, V), np.float32)
        row, length = slice(b, b + 1), paged.lengths[b : b + 1]
        attend_latents(q[row], "bf16", paged.rows, paged.table[row], length, out, SCALE)
        assert_close(out, together.out[row])


@pytest.mark.parametrize("name", FORMATS)
def test_nan_reaches_only_its_sequence_and_head(isa, name):
    latents, q = normal(1, 2, 40, K), normal(2, 2, 7, K)
    clean = Paged(name, latents).attend(q, isa)
    latents[0, 33, 100] = np.nan
    q[1, 5, 0] = np.nan
    out = Paged(name, latents).attend(q, isa)
    assert np.isnan(out[0]).all()
    assert np.isnan(out[1, 5]).all()
    assert_close(np.delete(out[1], 5, 0), np.delete(clean[1], 5, 0))


GOOD = {
    "q": np.zeros((1, 2, K), np.float32),
    "format": "f16",
    "latents": np.zeros((2, 16, K), np.float16),
    "block_table": np.zeros((1, 1), np.int32),
    "ends": np.array([3]),
    "out": np.zeros((1, 2, V), np.float32),
    "softmax_scale": 1.0,
}


@pytest.mark.parametrize(
    "changes, error, message",
    [
        ({"format": "f17"}, ValueError, "format: got f17, expected one of f32, f16, bf16, fp8, int8, int4"),
        ({"format": "bf16"}, TypeError, "latents: got float16"),
        ({"latents": np.zeros((2, 16, K + 16), np.float16)}, ValueError, "expected contiguous rows of 576"),
        ({"latents": np.zeros((16, K), np.float16)}, ValueError, r"latents: got float16 \[16, 576\]"),
        ({"latents": np.zeros((2, 32, K), np.float16)[:, ::2]}, ValueError, "contiguous"),
        ({"out": np.zeros((1, 2, 500), np.float32)}, ValueError, "multiples of 16 and 64"),
        ({"out": np.zeros((1, 3, V), np.float32)}, ValueError, r"out: got float32 \[1, 3, 512\]"),
        ({"out": np.zeros((1, 2, V))}, TypeError, "out: got float64"),
        ({"q": np.zeros((1, 2, K))}, TypeError, "q: got float64"),
        ({"q": np.zeros((2, K), np.float32)}, ValueError, r"q: got float32 \[2, 576\]"),
        ({"q": np.zeros((1, 0, K), np.float32)}, ValueError, r"q: got float32 \[1, 0, 576\], expected one head"),
        ({"window": -1}, ValueError, "window: got -1, expected 0 or more"),
        (
            {
                "format": "fp8",
                "latents": np.zeros((2, 16, 64 + 2 * 512), np.uint8),
                "out": np.zeros((1, 2, 64), np.float32),
            },
            ValueError,
            "multiples of 16 and 128",
        ),
        ({"ends": np.array([17])}, ValueError, "ends: got 17, expected 1 to 16"),
        ({"block_table": np.array([[2]], np.int32)}, ValueError, "got page 2, expected 0 to 1"),
        ({"lse": np.zeros((1, 3), np.float32)}, ValueError, r"lse: got float32 \[1, 3\], expected float32 \[1, 2\]"),
        ({"mass": np.zeros((1, 2), np.float32)}, ValueError, "mass: got 2 slots, expected 3 or more"),
        ({"mass": np.zeros((2, 3), np.float32)}, ValueError, r"mass: got float32 \[2, 3\]"),
        ({"mass": np.zeros((1, 3))}, TypeError, "mass: got float64"),
        ({"mass": np.broadcast_to(np.float32(0), (1, 3))}, TypeError, "mass: expected a writable float32"),
    ],
)
def test_bad_calls(changes, error, message):
    attend_latents(**GOOD)
    with pytest.raises(error, match=message):
        attend_latents(**GOOD | changes)
