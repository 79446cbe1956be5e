"""Vector operations of products: the table of the page, and the bound of AVX-VNNI over AVX2; exact under any load."""

import platform

import pytest
from support import amx
from support.close import assert_close
from support.instruction_counts import FORMATS, IN_A_DOT, MARKER, Count, counter, product_counts

import cpu_kernels

PAGE = amx.ROOT / "docs/cpu-and-gpu-kernels.md"

pytestmark = [
    pytest.mark.exhaustive("each instruction is a trap: 20 s"),
    pytest.mark.skipif(platform.system() != "Linux" or amx.COMPILER is None, reason="needs Linux and a compiler"),
    pytest.mark.skipif("avx_vnni" not in cpu_kernels.features(), reason="needs AVX2 and AVX-VNNI"),
]


@pytest.fixture(scope="module")
def count(tmp_path_factory) -> Count:
    return counter(tmp_path_factory.mktemp("steps"))


def rows_of_page() -> dict[str, list[str]]:
    """Weights -> the other cells of the row"""
    text = PAGE.read_text().partition(f"<!-- qbench:{MARKER} begin -->")[2].partition("<!-- qbench:")[0]
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.strip().splitlines()]
    return {name: cells for name, *cells in lines[2:]}


def test_the_page_has_every_format():
    assert tuple(rows_of_page()) == FORMATS


# The sums of 4-bit codes fit 16 bits for 8 groups, so AVX2 widens once per step and AVX-VNNI saves less.
@pytest.mark.parametrize("name, least", [("q4_0", 1.4), ("q8_0", 1.8), ("iq4_xs", 1.8)])
def test_avx_vnni_needs_fewer_instructions(capsys, one_thread, count, name, least):
    (avx2, token_avx2), (vnni, token_vnni) = (product_counts(count, name, isa) for isa in ("avx2", "avx_vnni"))
    ratio = avx2.instructions / vnni.instructions
    with capsys.disabled():
        print(f"\n{name}: instructions for {IN_A_DOT} multiply-adds, AVX2 and AVX-VNNI: in a tile")
        print(f"{avx2.instructions:.2f} and {vnni.instructions:.2f} ({ratio:.2f} times), for one token")
        print(f"{token_avx2.instructions:.2f} and {token_vnni.instructions:.2f}")
    assert ratio >= least and token_avx2.instructions > token_vnni.instructions
    cells = rows_of_page()[name]
    on_page = [float(cells[i]) for i in (0, 1, 4, 5)]
    # Compilers keep the operations of the source; they differ in moves, which are not counted.
    counted = [avx2.vector, avx2.multiplications, vnni.vector, vnni.multiplications]
    assert_close(on_page, counted, rtol=0.03)
