"""Ours and libggml's codecs, as they are timed: right, and errors are seen."""

import numpy as np
import pytest
from support.llama_package import skip_without_llama_cpp

from qbench.kernels import codec_benchmarks as module
from qbench.kernels.benchmark import OURS
from qbench.kernels.codec_benchmarks import codec_benchmarks, timed_codecs


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(module, "ENCODED_ROWS", 9)
    monkeypatch.setattr(module, "DECODED_ROWS", 9)
    monkeypatch.setattr(module, "DISTINCT_ROWS", 3)


@pytest.mark.parametrize("who", [OURS, "llama.cpp"])
@pytest.mark.parametrize("op", timed_codecs())
def test_all_contenders_are_right_and_errors_are_found(op, who):
    if who != OURS:
        skip_without_llama_cpp()
    (benchmark,) = codec_benchmarks(op, threads=2)
    contender = benchmark.contenders[who]()
    contender.run()
    out = contender.output()
    assert benchmark.check(out).is_right
    assert not benchmark.check(np.roll(out, 1, axis=0)).is_right
    short = out.copy()
    short[-1] = 0
    assert not benchmark.check(short).is_right  # the last rows, too
    assert contender.how and benchmark.shape == f"9x{module.ROW_SIZE}"
    assert benchmark.moved_bytes == out.nbytes + other_side(op)


@pytest.mark.parametrize("op", [op for op in timed_codecs() if op.startswith("decode_")])
def test_no_cache_keeps_the_output_of_a_decoder(op, monkeypatch):
    monkeypatch.undo()
    (benchmark,) = codec_benchmarks(op, threads=2)
    assert benchmark.is_cold(64 << 20) and benchmark.operations == 0


def other_side(op: str) -> int:
    """Bytes of the input."""
    num_weights = 9 * module.ROW_SIZE
    fmt = module.get_format(op.removeprefix("encode_").removeprefix("decode_"))
    return 4 * num_weights if op.startswith("encode_") else num_weights // fmt.block_size * fmt.block_bytes
