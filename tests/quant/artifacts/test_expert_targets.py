"""Which modules the groups of a compressed-tensors config name, if experts are among them."""

import numpy as np
import pytest
from support.architectures import small_config
from support.array_source import ArraySource

from quant.artifacts.layouts.compressed_tensors import CompressedTensorsLayout
from quant.artifacts.layouts.scheme import EXPERTS
from quant.formats import get_format


@pytest.mark.parametrize("last", ["w4g32", "w8"])
def test_experts_of_one_format_are_named_by_a_pattern(last):
    """transformers finds their scheme by a pattern alone. Experts in two groups keep their names."""
    formats = {"self_attn.o_proj": "w8", "mlp.experts.0.up_proj": "w4g32", "mlp.experts.1.up_proj": last}
    linears = {
        f"model.layers.0.{name}.weight": get_format(fmt).quantize(np.ones((32, 64), np.float32))
        for name, fmt in formats.items()
    }
    layout = CompressedTensorsLayout.of_tensors(ArraySource(small_config(), linears).tensors)
    targets = [group["targets"] for group in layout.config()["config_groups"].values()]
    names = [name.removesuffix(".weight") for name in linears]
    assert targets == ([[EXPERTS], names[:1]] if last == "w4g32" else [names[1:2], [names[0], names[2]]])
