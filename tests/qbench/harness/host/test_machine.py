import pytest

from qbench.harness.host.machine import installed_gib


@pytest.mark.parametrize(("seen_gib", "installed"), [(23.54, 24), (23.49, 24), (24.0, 24), (15.6, 16), (1.9, 4)])
def test_what_a_kernel_keeps_for_itself_is_no_other_machine(seen_gib, installed):
    assert installed_gib(int(seen_gib * 2**30)) == installed
