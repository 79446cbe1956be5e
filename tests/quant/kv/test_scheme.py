"""Where a model's KV format is written down, and how its scales are found."""

import json

import numpy as np
import pytest
import torch
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
def test_scales_are_the_least_powers_of_two_that_hold_the_largest(name, shape):
    scheme = calibrate_kv(KV_FORMATS[name], make_stats())
    assert scheme.k_scale.shape == shape and scheme.k_scale.dtype == np.float32
    top = {"kv-fp8-e5m2-cal": 57344}.get(name, 448)
    for scales, largest in ((scheme.k_scale, 64), (scheme.v_scale, 32)):
        scale = scales[1].max()
        assert np.frexp(scale)[0] == 0.5 and scale * top / 2 < largest <= scale * top


def test_a_range_that_is_a_power_of_two_of_the_largest_code_is_held_without_headroom():
    stats = [KVStats(np.full((2, 16), 448 / 64, np.float32), np.full((2, 16), 448 * 4, np.float32))]
    scheme = calibrate_kv(KV_FORMATS["kv-fp8-cal"], stats)
    assert scheme.k_scale.tolist() == [[1 / 64]] and scheme.v_scale.tolist() == [[4]]


@pytest.mark.parametrize("name", ["kv-fp8-cal", "kv-fp8-cal-head", "kv-fp8-e5m2-cal"])
@pytest.mark.parametrize("spread", [1e-4, 0.3, 50.0])
def test_no_value_is_rounded_worse_than_with_scale_one(name, spread):
    """A calibrated format must not lose to the same codes without calibration."""
    x = spread * torch.randn(1, 2, 400, 16, generator=torch.Generator().manual_seed(1))
    absmax = x.abs().amax(dim=(0, 2)).numpy()
    scheme = calibrate_kv(KV_FORMATS[name], [KVStats(absmax, absmax)])
    codec, ones = scheme.format.keys, torch.ones(scheme.k_scale.shape[1])
    errors = [(codec.round_trip(x, scale) - x).abs() for scale in (torch.from_numpy(scheme.k_scale[0]), ones)]
    assert (errors[0] <= errors[1]).all()


def test_values_beyond_the_codes_are_held_if_they_were_calibrated():
    x = torch.linspace(-3000, 3000, 32).reshape(1, 2, 1, 16)
    absmax = x.abs().amax(dim=(0, 2)).numpy()
    scheme = calibrate_kv(KV_FORMATS["kv-fp8-cal"], [KVStats(absmax, absmax)])
    found = scheme.format.keys.round_trip(x, torch.from_numpy(scheme.k_scale[0]))
    assert ((found - x).abs() <= x.abs() / 16).all()


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
