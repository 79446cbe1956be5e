"""One float16 scale, and codes stored above an offset: common code of Q4_0 and Q5_0."""

from typing import Any, ClassVar

import numpy as np

from quant.formats.bits import Packing
from quant.formats.half import HALF_MAX
from quant.formats.levels import WholeLevels
from quant.formats.linear_fit import Search, even_targets
from quant.formats.one_scale import OneScaleFormat


class OffsetCodesFormat(OneScaleFormat):
    """weight = d * (q - half), q in 0..2 * half - 1, half = 2**(bits - 1) of `packing`"""

    packing: ClassVar[Packing]

    def __init_subclass__(cls, **options: Any) -> None:
        half = 2 ** (cls.packing.bits - 1)
        cls.levels = WholeLevels(-half, half - 1)
        cls.searches = {
            "fast": Search(even_targets(-half, 2, 9)),
            "best": Search(even_targets(-half, 3, 25), num_refits=1),
        }
        cls.largest_weight = cls.levels.reach * HALF_MAX
        super().__init_subclass__(**options)

    def read_codes(self, data: np.ndarray) -> np.ndarray:
        return self.packing.unpack(data[:, 2:]).view(np.int8) + np.int8(self.levels.lowest)

    def pack_codes(self, q: np.ndarray) -> np.ndarray:
        return self.packing.pack((q - self.levels.lowest).astype(np.uint8))
