"""Where a model's KV format is written down, and how its scales are found."""

import json

import numpy as np
import pytest
from support.architectures import small_config

from quant.errors import InputError
from quant.kv import KV_FORMATS, KVScheme, calibrate_kv
from quant.kv.scheme import CONFIG_KEY
from quant.models import ModelConfig
from quant.stats import KVStats

CONFIG = small_config()  # 2 layers, 2 kv heads of 16
MODEL = ModelConfig.from_hf(CONFIG)


def make_stats() -> list[KVStats]:
    ranges = np.arange(1, 1 + 2 * 2 * 16, dtype=np.float32).reshape(2, 2, 16)
    return [KVStats(k_absmax=layer, v_absmax=layer / 2) for layer in ranges]


@pytest.mark.parametrize(
    "name, shape", [("kv-fp8-cal", (2, 1)), ("kv-fp8-cal-head", (2, 2)), ("kv-fp8-e5m2-cal", (2, 1))]
)
def test_scales_bring_the_largest_to_the_largest_code(name, shape):
    scheme = calibrate_kv(KV_FORMATS[name], make_stats())
    assert scheme.k_scale.shape == shape
    top = {"kv-fp8-e5m2-cal": 57344}.get(name, 448)
    np.testing.assert_array_equal(scheme.k_scale[1].max(), np.float32(np.float32(64) / top))
    np.testing.assert_array_equal(scheme.v_scale[1].max(), np.float32(np.float32(32) / top))


@pytest.mark.parametrize("name", KV_FORMATS)
def test_the_config_holds_a_scheme(name):
    scheme = calibrate_kv(KV_FORMATS[name], make_stats())
    config = CONFIG | {CONFIG_KEY: json.loads(json.dumps(scheme.config_entry()))}
    if name.startswith(("kv-int4", "kv-kivi")):
        with pytest.raises(InputError, match="groups of 32 channels do not divide a head of 16"):
            KVScheme.of(config, MODEL, "here")
        return
    got = KVScheme.of(config, MODEL, "here")
    assert got.format is scheme.format
    for mine, theirs in ((got.k_scale, scheme.k_scale), (got.v_scale, scheme.v_scale)):
        assert (mine is None and theirs is None) or np.array_equal(mine, theirs)


def test_no_entry_is_no_scheme():
    assert KVScheme.of(CONFIG, MODEL, "here") is None


@pytest.mark.parametrize(
    "entry, words",
    [
        pytest.param({"format": "kv-fp3"}, "here: kv_cache names 'kv-fp3'; known are kv-fp8", id="unknown"),
        pytest.param("kv-fp8", "kv_cache names None", id="no mapping"),
        pytest.param({"format": "kv-fp8-cal"}, "no k_scale of shape \\[2, 1\\]", id="missing"),
        pytest.param({"format": "kv-fp8-cal", "k_scale": [[1], [-1]]}, "no k_scale", id="negative"),
        pytest.param({"format": "kv-fp8-cal", "k_scale": [["a"], [1]]}, "no k_scale", id="no numbers"),
        pytest.param({"format": "kv-fp8-cal-head", "k_scale": [[1], [1]]}, "shape \\[2, 2\\]", id="per tensor"),
    ],
)
def test_broken_entries(entry, words):
    with pytest.raises(InputError, match=words):
        KVScheme.of(CONFIG | {CONFIG_KEY: entry}, MODEL, "here")


def test_calibrated_formats_need_ranges():
    with pytest.raises(InputError, match="kv-fp8-cal needs the ranges of keys and values"):
        calibrate_kv(KV_FORMATS["kv-fp8-cal"], [])
