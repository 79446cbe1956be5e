"""Every container keeps the KV format that a recipe names."""

import numpy as np
import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact

from quant.artifacts.gguf_kv import kv_from_metadata
from quant.artifacts.gguf_reader import GGUFSource
from quant.artifacts.hf_reader import HFSource
from quant.errors import InputError
from quant.job import make_job
from quant.kv.scheme import CONFIG_KEY
from quant.quantize import QuantizedSource
from quant.recipes import get_recipe

CONFIG = small_config(head_dim=32)


@pytest.mark.parametrize("recipe, reader", [("q8_0", GGUFSource), ("rtn-w8", HFSource)], ids=["gguf", "hf"])
def test_an_artifact_names_its_kv_format(tmp_path, recipe, reader):
    source = ArraySource(CONFIG, random_weights(CONFIG))
    named = reader(
        write_artifact(
            source, tmp_path / f"a{'.gguf' if reader is GGUFSource else ''}", recipe=get_recipe(f"{recipe}+kv-int8")
        )
    )
    assert named.config[CONFIG_KEY] == {"format": "kv-int8"}
    again = QuantizedSource(make_job(named, get_recipe(recipe)))
    assert CONFIG_KEY not in again.config, "a recipe without a KV format asks for none"


@pytest.mark.parametrize("reader", [GGUFSource, HFSource], ids=["gguf", "hf"])
def test_scales_come_back_as_they_were(tmp_path, reader):
    entry = {"format": "kv-fp8-cal", "k_scale": [[0.1], [0.007]], "v_scale": [[1e-3], [3.0]]}
    source = ArraySource(CONFIG | {CONFIG_KEY: entry}, random_weights(CONFIG))
    out = tmp_path / ("a.gguf" if reader is GGUFSource else "a")
    got = reader(write_artifact(source, out)).config[CONFIG_KEY]
    assert got["format"] == entry["format"]
    for key in ("k_scale", "v_scale"):
        np.testing.assert_array_equal(np.float32(got[key]), np.float32(entry[key]))


def test_calibrated_formats_are_refused_without_calibration():
    with pytest.raises(InputError, match=r"q8_0\+kv-fp8-cal needs calibration"):
        QuantizedSource(make_job(ArraySource(CONFIG, random_weights(CONFIG)), get_recipe("q8_0+kv-fp8-cal")))


@pytest.mark.parametrize("value", ["{", 7])
def test_a_key_that_is_no_json(value):
    with pytest.raises(InputError, match=r"key 'qbench\.kv_cache' must be JSON"):
        kv_from_metadata({"qbench.kv_cache": value}, "m.gguf")
