"""The places of a tile's tokens, in Triton: on pages that a block table names, or in dense rows.

A tile of at most a page's tokens is on one page, and one number finds it; otherwise each token has its own. Kernels
read it a tile ahead, so that no tile waits for it, and all of Triton's stages are tiles.
"""

import triton
import triton.language as tl


@triton.jit
def tile_page(p_table, i_n, end, stride_tp, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """The page of the tile from token i_n on, or of each of its tokens; 0 from `end` on."""
    if PAGE_SIZE % BLOCK_N == 0:
        token = i_n
    else:
        token = i_n + tl.arange(0, BLOCK_N)
    return tl.load(p_table + token // PAGE_SIZE * stride_tp, mask=token < end, other=0).to(tl.int64)


@triton.jit
def tile_offsets(page, i_n, stride_p, stride_t, PAGE_SIZE: tl.constexpr, BLOCK_N: tl.constexpr):
    """The offset of each of the tile's tokens [BLOCK_N].

    page  as `tile_page` gives it; of dense rows (PAGE_SIZE 0) the first row of the sequence
    """
    o_t = tl.arange(0, BLOCK_N)
    if PAGE_SIZE == 0:
        o_n = (page + i_n) * stride_t + o_t * stride_t
    elif PAGE_SIZE % BLOCK_N == 0:
        o_n = page * stride_p + i_n % PAGE_SIZE * stride_t + o_t * stride_t
    else:
        o_n = page * stride_p + (i_n + o_t) % PAGE_SIZE * stride_t
    return o_n
