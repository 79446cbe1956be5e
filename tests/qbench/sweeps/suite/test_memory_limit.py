"""Limits of a suite: sizes, and shares of the weights' bytes."""

import pytest

from qbench.run.axes import AXIS
from qbench.sweeps.case_runner import limit_bytes
from quant.errors import InputError


def test_a_size_is_itself(tmp_path):
    assert limit_bytes("2GiB", tmp_path) == 2 << 30


def test_a_share_counts_only_the_weights(tmp_path):
    file = tmp_path / "model.gguf"
    file.write_bytes(bytes(1000))
    (tmp_path / "made.json").write_bytes(bytes(77))
    assert limit_bytes("40%", file) == 400
    (tmp_path / "shard.safetensors").write_bytes(bytes(1000))
    assert limit_bytes("12.5%", tmp_path) == 250


@pytest.mark.parametrize("text", ["none", "40%", "640MiB"])
def test_limits_of_a_suite(text):
    AXIS["memory"].check(text)


@pytest.mark.parametrize("text", ["0%", "-3%", "x%", "many"])
def test_other_text_is_refused(text):
    with pytest.raises(InputError, match=f"{text!r}"):
        AXIS["memory"].check(text)
