"""LLM.int8() directories with outlier features: written tensors come back, and damage has a name."""

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.architectures import random_weights, small_config
from support.array_source import ArraySource

from quant.artifacts.hf_reader import HFSource
from quant.artifacts.hf_writer import write_hf
from quant.errors import InputError
from quant.formats import get_format

NAME = "model.layers.1.mlp.up_proj"
FEATURES = np.array([3, 17], dtype=np.int32)


@pytest.fixture
def source():
    """A model in llm-int8, one of whose linears knows two outlier features."""
    config, fmt = small_config("llama"), get_format("llm-int8")
    weights = random_weights(config)
    made = {name: fmt.quantize(weight) if "_proj" in name else weight for name, weight in weights.items()}
    made[f"{NAME}.weight"] = fmt.with_outliers(made[f"{NAME}.weight"], weights[f"{NAME}.weight"], FEATURES)
    return ArraySource(config, made)


def test_outlier_features_come_back(source, tmp_path):
    write_hf(source, tmp_path, packing="bitsandbytes")
    back = HFSource(tmp_path)
    for name, info in source.tensors.items():
        wanted, got = source.read(name), back.read(name)
        assert back.tensors[name].format == info.format
        assert back.tensors[name].size_bytes == got.size_bytes == wanted.size_bytes
        for kind in ("parts", "shared"):
            arrays = getattr(wanted, kind)
            assert getattr(got, kind).keys() == arrays.keys()
            for part, array in arrays.items():
                np.testing.assert_array_equal(getattr(got, kind)[part], array)


@pytest.mark.parametrize(
    "part, array, message",
    [
        ("outlier_features", np.array([3, 64], np.int32), "names features outside 0..63"),
        ("outlier_features", np.array([3], np.int32), "outlier_weight' is F16"),
        ("outlier_weight", None, "outlier_weight' is missing"),
    ],
    ids=["beyond the row", "fewer features than weights", "no weights"],
)
def test_damaged_outlier_parts_are_refused(source, tmp_path, part, array, message):
    write_hf(source, tmp_path, packing="bitsandbytes")
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors[f"{NAME}.{part}"]
    if array is not None:
        tensors[f"{NAME}.{part}"] = array
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(InputError, match=message):
        HFSource(tmp_path)
