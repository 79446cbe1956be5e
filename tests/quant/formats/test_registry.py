"""GGUF facts of block formats' classes, compared with the gguf package."""

import gguf
import pytest

from quant.formats import BLOCK_FORMATS, get_format

# Names of llama.cpp's file types that differ from MOSTLY_ and the format's name.
FILE_TYPES = {
    "f32": "ALL_F32",
    "q3_k": "MOSTLY_Q3_K_M",
    "q4_k": "MOSTLY_Q4_K_M",
    "q5_k": "MOSTLY_Q5_K_M",
    "mxfp4": "MOSTLY_MXFP4_MOE",
}
WITHOUT_FILE_TYPE = ("i8", "i16", "i32", "i64", "f64", "q2_0")


@pytest.mark.parametrize("name", [name for name in BLOCK_FORMATS if name not in WITHOUT_FILE_TYPE])
def test_file_type_is_the_one_of_llama_cpp(name):
    expected = FILE_TYPES.get(name, f"MOSTLY_{name.upper()}")
    assert get_format(name).gguf_file_type == gguf.LlamaFileType[expected]


@pytest.mark.parametrize("name", [name for name, fmt in BLOCK_FORMATS.items() if fmt.writes])
def test_fallback_is_a_format_of_smaller_blocks(name):
    fmt = get_format(name)
    assert (fmt.fallback is None) == (fmt.block_size <= 32)
    if fmt.fallback is not None:
        assert get_format(fmt.fallback).block_size == 32 and get_format(fmt.fallback).fallback is None


def test_formats_are_sorted_by_gguf_type():
    types = [fmt.gguf_type for fmt in BLOCK_FORMATS.values()]
    assert types == sorted(types) and len(types) == len(set(types))
