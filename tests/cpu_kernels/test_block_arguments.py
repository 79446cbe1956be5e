"""Arguments that both `decode` and `encode` refuse."""

import numpy as np
import pytest

from cpu_kernels.decode import decode
from cpu_kernels.encode import encode

# function, its blocks of q4_k, columns of a block of q8_0, and the kind of blocks that it takes
DECODE = (decode, np.zeros((4, 144), np.uint8), 34, r"uint8 \[B, 144\]")
ENCODE = (encode, np.zeros((4, 256), np.float32), 32, r"float32 \[B, 256\]")


@pytest.mark.parametrize("function, blocks, columns, kind", [DECODE, ENCODE], ids=["decode", "encode"])
def test_bad_blocks_are_refused(function, blocks, columns, kind):
    with pytest.raises(ValueError, match="format: got q9_9, expected one of"):
        function("q9_9", blocks)
    with pytest.raises(ValueError, match="strides"):
        function("q8_0", blocks[:, :columns])
    with pytest.raises(ValueError, match=f"expected {columns} columns"):
        function("q8_0", blocks)
    with pytest.raises(ValueError, match=f"expected {kind}"):
        function("q4_k", blocks[0])
    with pytest.raises(TypeError, match="got int64"):
        function("q4_k", blocks.astype(np.int64))
    with pytest.raises(RuntimeError, match="unknown instruction set"):
        function("q4_k", blocks, isa="sse9")
