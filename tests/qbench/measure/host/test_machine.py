from pathlib import Path

import pytest

from qbench.measure.host.machine import installed_gib, last_level_cache_bytes


@pytest.mark.parametrize(("seen_gib", "installed"), [(23.54, 24), (23.49, 24), (24.0, 24), (15.6, 16), (1.9, 4)])
def test_what_a_kernel_keeps_for_itself_is_no_other_machine(seen_gib, installed):
    assert installed_gib(int(seen_gib * 2**30)) == installed


@pytest.mark.skipif(not Path("/sys/devices/system/cpu/cpu0/cache/index3").exists(), reason="the system names no cache")
def test_the_last_cache_is_larger_than_the_one_before():
    assert last_level_cache_bytes() > 1 << 20
