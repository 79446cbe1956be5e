"""Random bytes in GGUF's block formats, and their values by the gguf package and quant's grids."""

import gguf
import numpy as np

from quant.formats import get_format

# Offsets of each format's float16 fields.
HALVES = {
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q8_0": (0,),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
    "iq4_nl": (0,),
    "iq4_xs": (0,),
    "mxfp4": (),
    "iq2_xxs": (0,),
    "iq2_xs": (0,),
    "iq2_s": (0,),
    "iq3_xxs": (0,),
    "iq3_s": (0,),
    "iq1_s": (0,),
    "iq1_m": (),
    "tq1_0": (52,),
    "tq2_0": (64,),
    "nvfp4": (),
    "q1_0": (0,),
    "q2_0": (0,),
}
# They share their code with iq2_xs, iq3_s, tq1_0 and the groups of 2 bits; test_grids.py has the lattices in every run.
SIMILAR = ("iq2_xxs", "iq2_s", "iq3_xxs", "tq2_0")
# Formats that have no C++ code: they are decoded by NumPy and multiplied in float32.
WITHOUT_KERNELS = ("iq1_s", "iq1_m", "nvfp4", "q1_0", "q2_0")
# Formats that C++ multiplies, and NumPy encodes and decodes.
NUMPY_CODECS = ("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "tq1_0", "tq2_0")
# format -> (bytes of its scales that are no float16 field, bits that stay random, bits that are set)
SCALES = {"iq1_m": (slice(55, 56), 0x8F, 0x20), "nvfp4": (slice(0, 4), 0x1F, 0)}
EXPONENTS = {"mxfp4": 0}  # where the format's power of two is; 128 means 1, as codes are doubled
AFFINE = ("q4_1", "q5_1", "q2_k", "q4_k", "q5_k")  # weight = scale * code + minimum


def random_blocks(format_name: str, num_rows: int, row_size: int, seed: int = 0) -> np.ndarray:
    """uint8 [N, row bytes]: every code and every inner scale, under scales of both signs if the format has them."""
    fmt = get_format(format_name)
    rng = np.random.default_rng((seed, num_rows, row_size, fmt.block_bytes))
    data = rng.integers(0, 256, (num_rows, row_size // fmt.block_size, fmt.block_bytes), dtype=np.uint8)
    for first in HALVES[format_name]:
        halves = rng.uniform(-1, 1, data.shape[:2]).astype("<f2") / np.float16(256)
        data[..., first : first + 2] = halves[..., None].view(np.uint8)
    if format_name in EXPONENTS:
        data[..., EXPONENTS[format_name]] = rng.integers(112, 121, data.shape[:2])
    if format_name in SCALES:
        places, kept, added = SCALES[format_name]
        data[..., places] = data[..., places] & kept | added
    return data.reshape(num_rows, data.shape[1] * data.shape[2])


def gguf_values(format_name: str, blocks: np.ndarray) -> np.ndarray:
    """float32 [N, K] as the gguf package reads the bytes"""
    return gguf.dequantize(blocks, gguf.GGMLQuantizationType[format_name.upper()])


def minima(format_name: str, blocks: np.ndarray) -> np.ndarray | None:
    """The value of code 0, float32 [N, K]; None for formats without minima"""
    if format_name not in AFFINE:
        return None
    fmt = get_format(format_name)
    return fmt.read_grid(blocks.reshape(-1, fmt.block_bytes)).offset.reshape(len(blocks), -1)
