"""An implementation's name states its path by number of tokens, and is read back so."""

import pytest

from qbench.path_names import changes, path_at, tell_paths


def steps(*of):
    """choice from (first number of tokens, instruction set, path)"""
    return lambda count: next((isa, path) for first, isa, path in reversed(of) if count >= first)


K_QUANT = steps((1, "avx512_vnni", "direct"), (33, "avx512_vnni", "tile"), (64, "avx512_vnni", "int8x256"))
F16 = steps((1, "avx512", "direct"), (8, "avx512_bf16", "bf16 products"))
ALIKE = steps((1, "scalar", "direct"))


@pytest.mark.parametrize(
    "choice, told",
    [
        (K_QUANT, "avx512_vnni direct, tile from 33 tokens, int8x256 from 64"),
        (F16, "avx512 direct, avx512_bf16 bf16 products from 8 tokens"),
        (ALIKE, "scalar direct"),
    ],
    ids=["k-quant", "f16", "alike"],
)
def test_path_names_are_written_and_read_back(choice, told):
    assert tell_paths(choice) == told
    for count in range(1, 513):
        assert path_at(f"cpu-x[{told}]", count) == "cpu-x[{} {}]".format(*choice(count))


def test_changes_are_found_wherever_they_are():
    assert changes(steps((1, "a", "x"), (2, "a", "y"), (512, "b", "y")), 1, 512) == [2, 512]


@pytest.mark.parametrize("name", ["reference", "cpu-llm-int8[avx512_vnni]", "cuda-w8a8_gemm", "cpu-old[avx512, tile]"])
def test_a_name_without_paths_is_left_as_it_is(name):
    assert path_at(name, 512) == name
