"""Instructions that products execute, and the bound of AVX-VNNI over AVX2 that follows: exact under any load."""

import ctypes
import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import amx

import cpu_kernels
from cpu_kernels import _ext
from qbench.kernels.random_weight import random_weight
from quant.formats import get_format

ROWS, FEATURES, TOKENS = (32, 64), 128, (30, 60)  # tokens: whole tiles of AVX2's 5 and of AVX-VNNI's 6
IN_A_DOT = 32  # multiply-adds of one vpdpbusd or vpmaddubsw

pytestmark = [
    pytest.mark.exhaustive("each instruction is a trap: 10 s"),
    pytest.mark.skipif(platform.system() != "Linux" or amx.COMPILER is None, reason="needs Linux and a compiler"),
    pytest.mark.skipif("avx_vnni" not in cpu_kernels.features(), reason="needs AVX2 and AVX-VNNI"),
]


@pytest.fixture(scope="module")
def count(tmp_path_factory) -> Callable[[Callable[[], object]], int]:
    """count(call): instructions of the extension that a call executes in this thread"""
    built = amx.build(
        tmp_path_factory.mktemp("steps") / "libsteps.so", [amx.ROOT / "tests/support/steps.cpp"], "-shared", "-fPIC"
    )
    library = ctypes.CDLL(str(built))
    library.stop_counting.restype = ctypes.c_uint64
    maps = [line.split() for line in Path("/proc/self/maps").read_text().splitlines()]
    code = next(line[0] for line in maps if line[-1] == _ext.__file__ and "x" in line[1])
    begin, end = (ctypes.c_uint64(int(part, 16)) for part in code.split("-"))

    def counted(call: Callable[[], object]) -> int:
        call()  # so that the work of a first call is over
        library.start_counting(begin, end)
        call()
        return library.stop_counting()

    return counted


def product_counts(count, name: str, isa: str) -> tuple[float, float]:
    """Instructions for 32 multiply-adds: of a tile without unpacking and rounding, and of one token with both."""
    rng = np.random.default_rng(1)
    found = {}
    for rows in ROWS:
        weight = random_weight(get_format(name), (rows, FEATURES), rng)
        packed = cpu_kernels.PackedLinear(name, weight.parts, weight.shape)
        for tokens in (1, *TOKENS):
            x = rng.standard_normal((tokens, FEATURES)).astype(np.float32)
            path = "direct" if tokens == 1 else "tile"
            found[rows, tokens] = count(lambda packed=packed, x=x, path=path: packed.matmul(x, isa=isa, path=path))
    own = {tokens: found[ROWS[1], tokens] - found[ROWS[0], tokens] for tokens in (1, *TOKENS)}
    dots = (ROWS[1] - ROWS[0]) * FEATURES / IN_A_DOT
    return (own[TOKENS[1]] - own[TOKENS[0]]) / (dots * (TOKENS[1] - TOKENS[0])), own[1] / dots


# The sums of 4-bit codes fit 16 bits for 8 groups, so AVX2 widens once per step and AVX-VNNI saves less.
@pytest.mark.parametrize("name, least", [("q4_0", 1.4), ("q8_0", 1.8)])
def test_avx_vnni_needs_fewer_instructions(capsys, one_thread, count, name, least):
    (tile_avx2, token_avx2), (tile_vnni, token_vnni) = (
        product_counts(count, name, isa) for isa in ("avx2", "avx_vnni")
    )
    with capsys.disabled():
        print(f"\n{name}: instructions for {IN_A_DOT} multiply-adds, AVX2 and AVX-VNNI: in a tile {tile_avx2:.2f} and")
        print(
            f"{tile_vnni:.2f} ({tile_avx2 / tile_vnni:.2f} times), for one token {token_avx2:.2f} and {token_vnni:.2f}"
        )
    assert tile_avx2 >= least * tile_vnni and token_avx2 > token_vnni
