"""Ours and torch's attention over latents, as they are timed, find the latent that the queries look for."""

import numpy as np
import pytest

from qbench.kernels import latent_benchmarks as module
from qbench.kernels.attention import LATENT_FORMATS
from qbench.kernels.latent_benchmarks import LATENTS, latent_benchmarks
from qbench.kernels.timed import timed_ops


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(module, "DEPTH", 192)
    monkeypatch.setattr(module, "COLD_BYTES", 500_000)


@pytest.mark.parametrize("name", LATENT_FORMATS)
def test_all_contenders_are_right_and_errors_are_found(small, name):
    (benchmark,) = latent_benchmarks(name, (1, 512))
    assert benchmark.op in timed_ops() and benchmark.calls > 1
    assert set(benchmark.contenders) == {"qbench", "torch-float32", "torch-bfloat16"}
    for who, build in benchmark.contenders.items():
        contender = build()
        contender.run()
        out = contender.output()
        assert out.shape == (16, 512) and benchmark.check(out).is_right, who
        assert contender.how, who
        assert not benchmark.check(np.roll(out, 1, axis=1)).is_right
    assert benchmark.operations == 2 * 16 * 192 * (576 + 512)


def test_a_prompt_has_no_latents():
    assert list(latent_benchmarks("f16", (16, 512))) == [] and LATENTS == "latents_"
