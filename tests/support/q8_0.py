"""Q8_0 bytes written by hand, for the tests and benchmarks of its kernels."""

import numpy as np

import cpu_kernels


def q8_0_blocks(scale: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """GGUF bytes of given scales [N, B] and integer codes [N, B, 32] -> uint8 [N, B * 34]."""
    scale_bytes = scale.astype("<f2")[..., None].view(np.uint8)  # [N, B, 2]
    code_bytes = codes.astype(np.int8).view(np.uint8)  # [N, B, 32]
    num_rows, num_blocks = scale.shape
    return np.concatenate([scale_bytes, code_bytes], axis=-1).reshape(num_rows, num_blocks * 34)


def random_q8_0(num_rows: int, row_size: int, seed: int = 0) -> np.ndarray:
    """uint8 [N, K // 32 * 34] with every code from -128 to 127 and scales of about 1/128."""
    rng = np.random.default_rng((seed, num_rows, row_size))
    shape = (num_rows, row_size // 32)
    return q8_0_blocks(rng.uniform(0.5, 1.5, shape) / 128, rng.integers(-128, 128, (*shape, 32)))


def packed_q8_0(blocks: np.ndarray) -> cpu_kernels.PackedLinear:
    return cpu_kernels.PackedLinear("q8_0", {"blocks": blocks}, (len(blocks), blocks.shape[1] // 34 * 32))
