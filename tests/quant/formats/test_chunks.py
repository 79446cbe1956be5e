"""Large weights are quantized in chunks of rows, of formats whose parts are arrays."""

import numpy as np
import pytest

from quant.formats import get_format


@pytest.mark.parametrize("name", ["w8a8", "w4g128"])
def test_chunks_do_not_show(name):
    fmt = get_format(name)
    weight = np.random.default_rng(9).standard_normal((300, 1024)).astype(np.float32)
    whole = fmt.quantize_ref(weight)
    rows = [fmt.quantize_ref(weight[i : i + 1]) for i in range(len(weight))]
    for part, array in whole.parts.items():
        np.testing.assert_array_equal(array, np.concatenate([row.parts[part] for row in rows]))
