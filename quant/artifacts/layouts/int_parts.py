"""Common parts of the layouts of grouped integers: scales in float16, and the group of each input feature."""

import numpy as np

from quant.artifacts.layouts.base import StoredModule
from quant.errors import InputError
from quant.formats import IntGroupFormat, get_format
from quant.formats.bits import HALF_MAX
from quant.source import SharedInfo

SCALE_DTYPES = ("BF16", "F32")  # that scales are read from, in addition to F16
SMALLEST_NORMAL = 2.0**-14  # of float16; below it the relative error of rounding to it grows


def int_group_format(name: str) -> IntGroupFormat:
    """The format of this name, which is one of grouped integers."""
    fmt = get_format(name)
    assert isinstance(fmt, IntGroupFormat)
    return fmt


def half_scale(scale: np.ndarray, module: StoredModule, part: str) -> np.ndarray:
    """Scales of any float dtype as the float16 that the formats keep.

    bfloat16 is exact there, float32 is rounded: a relative error of 2**-11 at most.
    raises   InputError for scales that are no such numbers: NaN, inf, or outside float16's range
    """
    magnitude = np.abs(scale.astype(np.float32))
    usable = (magnitude <= HALF_MAX) & ((magnitude >= SMALLEST_NORMAL) | (scale == scale.astype(np.float16)))
    if not usable.all():
        worst = scale[~usable].reshape(-1)[0]
        raise InputError(
            f"{module.folder}: '{module.name}.{part}' holds {worst:g}, and scales are kept in float16 here, "
            f"from {SMALLEST_NORMAL:.2g} to {HALF_MAX:.0f}"
        )
    return np.ascontiguousarray(scale.astype(np.float16))


def natural_groups(fmt: IntGroupFormat, row_size: int) -> np.ndarray:
    """[K] int32: the group of each input feature where groups follow one another"""
    return np.arange(row_size, dtype=np.int32) // (fmt.group_size or row_size)


def shared_groups(fmt: IntGroupFormat, row_size: int, module: StoredModule, part: str) -> tuple[SharedInfo, ...]:
    """The entry of a g_idx that differs from k // group_size; () if it does not.

    raises   InputError for groups that do not exist
    """
    g_idx = module.read(part)
    num_groups = fmt.num_groups(row_size)
    if g_idx.min() < 0 or g_idx.max() >= num_groups:
        raise InputError(f"{module.folder}: '{module.name}.{part}' names groups that are none of 0 to {num_groups - 1}")
    if np.array_equal(g_idx, natural_groups(fmt, row_size)):
        return ()
    return (SharedInfo("g_idx", (row_size,), "int32"),)
