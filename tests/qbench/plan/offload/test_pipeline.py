"""Steps of pipelines that can be computed by hand, and bounds that hold for all."""

from itertools import pairwise

import numpy as np
import pytest

from qbench.plan.offload.costs import DiskRates
from qbench.plan.offload.pipeline import Stage, pipeline_time

MB = 1_000_000
DISK = DiskRates(1e9)  # 1 MB per ms


def streamed(megabytes: int, ms: float) -> Stage:
    return Stage(megabytes * MB, megabytes * MB, ms / 1e3)


def test_layers_in_memory_take_their_computation():
    step = pipeline_time([Stage(0, 0, 0.003), Stage(0, 0, 0.004, blocked_s=0.002)], 0, DISK)
    assert (step.step_s, step.compute_s, step.wait_s) == pytest.approx((0.009, 0.007, 0.002))
    assert step.disk_bytes == pytest.approx(2 * MB)  # of experts


def test_a_large_ring_overlaps_in_full():
    stages = [streamed(4, ms=1)] * 4
    step = pipeline_time(stages, 100 * MB, DISK)
    assert (step.step_s, step.wait_s, step.disk_s) == pytest.approx((0.016, 0.012, 0.016))
    busy = pipeline_time([streamed(4, ms=6)] * 4, 100 * MB, DISK)
    assert (busy.step_s, busy.wait_s) == pytest.approx((0.024, 0))


def test_a_ring_of_one_unit_overlaps_nothing():
    step = pipeline_time([streamed(4, ms=1)] * 4, 4 * MB, DISK)
    assert step.step_s == pytest.approx(4 * (0.004 + 0.001))


def test_layers_that_stay_side_by_side_leave_the_disk_idle():
    """Two units fill the ring: 4 ms to read each, 20 ms of layers that stay, of which reads can use 8 ms."""
    spread = [streamed(4, ms=0), Stage(0, 0, 0.004)] * 4
    packed = [streamed(4, ms=0)] * 4 + [Stage(0, 0, 0.004)] * 4
    assert pipeline_time(spread, 8 * MB, DISK).step_s == pytest.approx(0.016)
    assert pipeline_time(packed, 8 * MB, DISK).step_s == pytest.approx(0.016 + 0.008)


def test_reads_take_processor_time_from_computation():
    """A fifth of the time while the disk reads: 16 ms of reads make 16 ms of computation 3.2 ms longer."""
    step = pipeline_time([streamed(4, ms=4)] * 4, 100 * MB, DiskRates(1e9, slowdown_s=2e-10))
    assert step.step_s == pytest.approx(0.016 + 0.0032, rel=0.02)


@pytest.mark.parametrize("seed", range(8))
def test_a_step_is_between_full_overlap_and_no_overlap(seed):
    rng = np.random.default_rng(seed)
    stages = [Stage(size, size, rng.uniform(0, 0.01)) for size in rng.integers(0, 20 * MB, 6).tolist()]
    disk = sum(stage.read_bytes for stage in stages) / DISK.bytes_s
    compute = sum(stage.compute_s for stage in stages)
    steps = [pipeline_time(stages, ring * MB, DISK).step_s for ring in (20, 30, 60, 200)]
    assert all(max(disk, compute) - 1e-9 <= step <= disk + compute + 1e-9 for step in steps)
    assert all(wide <= narrow + 1e-3 * narrow for narrow, wide in pairwise(steps))


def test_a_ring_that_holds_no_unit_is_an_error():
    with pytest.raises(ValueError, match="too small"):
        pipeline_time([streamed(4, ms=1)], 3 * MB, DISK)
