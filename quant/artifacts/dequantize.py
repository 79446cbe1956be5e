"""The float32 of a stored tensor."""

import numpy as np

from quant.formats import get_format
from quant.qtensor import QTensor


def dequantize(qtensor: QTensor) -> np.ndarray:
    """float32 of the tensor's logical shape, by its format's reference codec."""
    return get_format(qtensor.format).dequantize_ref(qtensor)
