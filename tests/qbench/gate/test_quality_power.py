"""A loss of quality of two noise floors, as noise on the weights makes it, is found."""

import numpy as np
import pytest
from support.gate_rows import PROTOCOL, row
from support.quality_loss import NoisyModel

from qbench.gate.check import POWER, Check, judge
from qbench.gate.pairing import Pair
from qbench.gate.quality import quality_checks
from qbench.measure.records.record import Record
from qbench.statistics.estimate import Estimate

# The floor of ref:llama on 24 windows, as `qbench compare ref:llama --noise-floor --windows 24` measures it; a higher
# one would make the losses below larger, and easier to find.
FLOORS = {"perplexity": 4.9e-4, "kld": 1.1e-4}
# The other checks of the ci suite that chance may call worse, unchanged: the peak and two phases of four cases.
OTHERS = [Check("speed", "other", "pp512", "tok/s", 1.0, 1.0, Estimate(1e-3, 1e-2, -0.02, 0.02, 0.9))] * 12


def finds(noisy: NoisyModel, seed: int) -> bool:
    now = noisy.with_loss(2 * FLOORS["kld"], seed)
    checks = quality_checks(
        Pair("noisy", *(Record.from_json(row(**metrics)) for metrics in (noisy.baseline, now))),
        {PROTOCOL["hash"]: FLOORS},
    )
    return any(check.verdict == "worse" for check in judge([*checks, *OTHERS]))


@pytest.mark.exhaustive("six seconds of forward passes; verdicts on given losses are in every run")
def test_on_few_windows():
    assert finds(NoisyModel("q4_k_m", 6), seed=1)


@pytest.mark.timeout(0)
@pytest.mark.parametrize("recipe", ["bf16", "q4_k_m"])
def test_power(benchmark, recipe):
    """The whole text, as the ci suite evaluates it, and noise that no choice of the gate was made on; minutes."""
    noisy = NoisyModel(recipe, None)
    found = benchmark.pedantic(lambda: [finds(noisy, seed) for seed in range(100, 110)], rounds=1)
    benchmark.extra_info["found"] = f"{sum(found)} of {len(found)}"
    assert np.mean(found) >= POWER
