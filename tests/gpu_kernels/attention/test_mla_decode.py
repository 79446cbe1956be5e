"""In addition to the problems (proof/test_check.py): edges, formats, refusals."""

import pytest
import torch
from support.close import assert_close
from support.older_gpu import as_sm_80

from gpu_kernels.attention.agreement import agrees
from gpu_kernels.attention.configs import Config
from gpu_kernels.attention.mla_decode import (
    HEAD_SIZE,
    LATENT_SIZE,
    Operands,
    decode_tokens,
    mla_decode,
    mla_decode_ref,
)
from gpu_kernels.attention.mla_decode_triton import CONFIGS, mla_decode_triton, row
from gpu_kernels.attention.paged_operands import page_tables, poison
from quant.kv.mla_latent import decode_latent, encode_latent

SCALE = 192**-0.5
forms = pytest.mark.parametrize("is_fp8", [False, True], ids=["float16", "fp8"])


def make(seq_lens, num_queries=1, num_heads=3, page_size=16, is_fp8=False, device="cpu"):
    generator = torch.Generator().manual_seed(1)
    table, seq_lens_tensor, num_pages = page_tables(seq_lens, page_size, device)
    tokens = torch.randn(num_pages, page_size, HEAD_SIZE, generator=generator)
    query = torch.randn(len(seq_lens), num_queries, num_heads, HEAD_SIZE, generator=generator).half()
    cache = encode_latent(tokens[..., :LATENT_SIZE], tokens[..., LATENT_SIZE:]) if is_fp8 else tokens.half()
    cache = poison(cache, table.cpu(), seq_lens, 255 if is_fp8 else torch.nan)
    return {
        "query": query.to(device),
        "cache": cache.to(device),
        "block_table": table,
        "seq_lens": seq_lens_tensor,
        "softmax_scale": SCALE,
    }


def check(run, operands, **options):
    got = run(mla_decode, Operands(**operands, **options), impl="triton")
    longest = operands["block_table"].shape[1] * operands["cache"].shape[1]
    assert agrees(got, mla_decode_ref(Operands(**operands)), head_size=HEAD_SIZE, num_tokens=longest)
    return got


# -- the FP8 layout


def test_fp8_tokens_match_quant():
    """The bytes of quant.kv, read by both: equal if nothing is rounded once more."""
    generator = torch.Generator().manual_seed(0)
    latent, key = torch.randn(7, 512, generator=generator), torch.randn(7, 64, generator=generator)
    data = encode_latent(latent * torch.logspace(-3, 3, 7)[:, None], key)
    expected = torch.cat(decode_latent(data), dim=-1)
    assert torch.equal(decode_tokens(data, torch.float32), expected)
    assert torch.equal(decode_tokens(data, torch.bfloat16), expected)  # the rotated channels are of it


def test_kernel_reads_the_bytes_of_quant(run):
    check(run, make([63, 5], is_fp8=True, device=run.device))


def test_a_gpu_without_fp8_converts_through_integers(run):
    operands = make([63, 5], is_fp8=True, device=run.device)
    got = run(as_sm_80, mla_decode, Operands(**operands), impl="triton")
    assert agrees(got, mla_decode_ref(Operands(**operands)), head_size=HEAD_SIZE, num_tokens=64)


# -- edges


@forms
def test_causal_queries_before_the_first_token(run, is_fp8):
    """Three new tokens in sequences of 0, 1 and 2: those without a token give zeros and lse = -inf."""
    out, lse = check(run, make([0, 1, 2], num_queries=3, is_fp8=is_fp8, device=run.device))
    for sequence, num_seen in enumerate([0, 1, 2]):
        assert (out[sequence, : 3 - num_seen] == 0).all()
        assert (lse[sequence, : 3 - num_seen] == -torch.inf).all()
        assert lse[sequence, 3 - num_seen :].isfinite().all()


@forms
def test_parts_do_not_change_more_than_rounding(run, is_fp8):
    """More parts than tiles, too: those without a token weigh nothing."""
    operands = make([131, 3], num_queries=2, is_fp8=is_fp8, device=run.device)
    for splits in (1, 2, 5, 7):
        check(run, operands, num_kv_splits=splits)


def test_one_token_is_its_own_value(run):
    operands = make([1], device=run.device)
    out, _ = check(run, operands)
    latent = operands["cache"][operands["block_table"][0, 0], 0, :LATENT_SIZE]
    assert torch.equal(out[0, 0], latent.expand(3, -1))


@forms
def test_nan_reaches_only_its_sequence(run, is_fp8):
    operands = make([40, 40], is_fp8=is_fp8, device=run.device)
    cache, page = operands["cache"], operands["block_table"][1, 0]
    if is_fp8:
        cache[page, 3, 512:516] = 255  # the scale of its first 128; the interpreter knows no NaN in e4m3
    else:
        cache[page, 3, 7] = torch.nan
    for splits in (1, 2):
        out, lse = check(run, operands, num_kv_splits=splits)
        assert out[0].isfinite().all() and lse[0].isfinite().all()
        assert out[1].isnan().all() and lse[1].isnan().all()


def test_strided_operands(run):
    """Every other query of a larger tensor; pages with room between them; a table and seq_lens with steps."""
    operands = make([33, 16], num_queries=2, device=run.device)
    wide = torch.full((2, 4, 6, HEAD_SIZE), torch.nan, dtype=torch.float16, device=run.device)
    wide[:, ::2, ::2] = operands["query"]
    roomy = torch.full((len(operands["cache"]), 24, HEAD_SIZE), torch.nan, dtype=torch.float16, device=run.device)
    roomy[:, :16] = operands["cache"]
    table = operands["block_table"].repeat_interleave(2, dim=1)
    seq_lens = operands["seq_lens"].repeat_interleave(3)
    views = {
        "query": wide[:, ::2, ::2],
        "cache": roomy[:, :16],
        "block_table": table[:, ::2],
        "seq_lens": seq_lens[::3],
    }
    check(run, operands | views)


@pytest.mark.parametrize("form", ["16 bit", "8 bit"])
def test_every_tile_shape(run, form):
    operands = make([70], num_heads=66, is_fp8=form == "8 bit", device=run.device)
    expected = mla_decode_ref(Operands(**operands))
    for config in {config for _, configs in CONFIGS[90, form] for config in configs}:
        out = torch.full((1, 1, 66, LATENT_SIZE), torch.nan, dtype=torch.float16, device=run.device)
        lse = torch.full((1, 1, 66), torch.nan, device=run.device)
        run(mla_decode_triton, Operands(**operands, max_seq_len=70, num_kv_splits=1), out, lse, config)
        assert agrees((out, lse), expected, head_size=HEAD_SIZE, num_tokens=70), config


# -- the public function


def test_cpu_default_is_the_reference():
    operands = make([5, 0])
    out, lse = mla_decode(Operands(**operands))
    expected = mla_decode_ref(Operands(**operands))
    assert torch.equal(out, expected.out.half())
    assert_close(lse, expected.lse.float())


def test_empty_batches_give_empty_results():
    operands = make([5])
    none = {
        "query": operands["query"][:0],
        "block_table": operands["block_table"][:0],
        "seq_lens": torch.empty(0).int(),
    }
    assert mla_decode(Operands(**operands | none))[0].shape == (0, 1, 3, LATENT_SIZE)
    assert mla_decode(Operands(**operands | {"query": operands["query"][:, :, :0]}))[1].shape == (1, 1, 0)


REFUSED = {
    "float32 query": ({"query": torch.zeros(2, 1, 3, 576)}, TypeError, "got query torch.float32"),
    "other cache": ({"cache": torch.zeros(2, 16, 576).bfloat16()}, TypeError, "got cache torch.bfloat16"),
    "int64 table": ({"block_table": torch.zeros(2, 3).long()}, TypeError, "got block_table torch.int64"),
    "other width": ({"query": torch.zeros(2, 1, 3, 512).half()}, ValueError, r"expected \[B, Q, H, 576\]"),
    "fp8 width": ({"cache": torch.zeros(9, 16, 576).byte()}, ValueError, r"expected \[num_pages, page_size, 656\]"),
    "other batch": ({"seq_lens": torch.zeros(3).int()}, ValueError, r"got seq_lens \[3\], expected \[2\]"),
    "two devices": ({"seq_lens": torch.zeros(2, device="meta").int()}, ValueError, "on meta and query on cpu"),
    "transposed": ({"cache": torch.zeros(9, 576, 16).half().mT}, ValueError, "expected a dense last axis"),
    "unaligned": ({"cache": torch.zeros(9, 16, 577).half()[..., :576]}, ValueError, "rows 16-byte aligned"),
    "page size": (
        {"cache": torch.zeros(9, 8, 576).half()},
        NotImplementedError,
        r"page size 8, expected one of \['16'",
    ),
    "17 tokens": ({"query": torch.zeros(2, 17, 3, 576).half()}, NotImplementedError, "expected 1 to 16"),
    "no parts": ({"num_kv_splits": 0}, ValueError, "got num_kv_splits 0"),
}


@pytest.mark.parametrize("change, error, message", REFUSED.values(), ids=REFUSED.keys())
def test_bad_operands_are_refused(change, error, message):
    with pytest.raises(error, match=message):
        mla_decode(Operands(**make([20, 5]) | change))


def test_unknown_implementation_is_refused():
    with pytest.raises(NotImplementedError, match="got impl 'cuda'"):
        mla_decode(Operands(**make([20, 5])), impl="cuda")


@pytest.mark.parametrize("num_rows, block_r", [(1, 16), (16, 16), (17, 32), (33, 64), (2048, 64)])
def test_rows_fill_the_tile(num_rows, block_r):
    assert row(90, False, num_rows)[1][0].block_r == block_r
    assert isinstance(row(90, True, num_rows)[1][0], Config)
