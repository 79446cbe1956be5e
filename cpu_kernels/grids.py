"""Grids of the formats whose weights are points of a lattice. The kernels ask for each once."""

import gguf
import numpy as np


def grid_points(format_name: str) -> np.ndarray:
    """Magnitudes of the weights of each point, [P, 4 or 8] uint8. The tables are those of the gguf package.

    source   llama.cpp, ggml-common.h: iq2xxs_grid, iq2xs_grid, iq2s_grid, iq3xxs_grid, iq3s_grid
    """
    traits = getattr(gguf.quants, format_name.upper())
    traits.init_grid()
    return np.ascontiguousarray(traits.grid[0, 0].astype(np.uint8))
