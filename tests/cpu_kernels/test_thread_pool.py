import subprocess
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from support.amx import PYTHON
from support.close import assert_close
from support.q8_0 import packed_q8_0, random_q8_0
from support.waits import WAIT_S

import cpu_kernels

AFTER_FORK = """
import os, numpy as np, cpu_kernels
packed = cpu_kernels.PackedLinear("q8_0", {"blocks": np.full((512, 34 * 8), 60, np.uint8)}, (512, 256))
x = np.ones((64, 256), np.float32)
cpu_kernels.set_num_threads(4)
before = packed.matmul(x)
child = os.fork()
if child == 0:
    same = np.array_equal(packed.matmul(x), before) and cpu_kernels.get_num_threads() == 4
    os._exit(0 if same else 3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert np.array_equal(packed.matmul(x), before)
"""


@pytest.fixture(autouse=True)
def keep_num_threads():
    before = cpu_kernels.get_num_threads()
    yield
    cpu_kernels.set_num_threads(before)


@pytest.fixture
def case():
    return packed_q8_0(random_q8_0(331, 256)), np.random.default_rng(0).standard_normal((67, 256)).astype(np.float32)


def test_results_do_not_depend_on_the_number_of_threads(case):
    packed, x = case
    cpu_kernels.set_num_threads(1)
    expected = packed.matmul(x)
    for num_threads in (2, 3, 8):
        cpu_kernels.set_num_threads(num_threads)
        assert cpu_kernels.get_num_threads() == num_threads
        for _ in range(50):
            assert_close(packed.matmul(x), expected)


def test_callers_on_several_threads(case):
    packed, x = case
    expected = packed.matmul(x)
    cpu_kernels.set_num_threads(3)
    with ThreadPoolExecutor(4) as callers:
        for y in callers.map(lambda _: packed.matmul(x), range(200)):
            assert_close(y, expected)


def test_the_number_of_threads_may_change_while_a_kernel_runs(case):
    packed, x = case
    expected = packed.matmul(x)
    with ThreadPoolExecutor(2) as callers:
        results = callers.map(lambda _: packed.matmul(x), range(100))
        for i in range(50):
            cpu_kernels.set_num_threads(1 + i % 4)
        for y in results:
            assert_close(y, expected)


def test_a_forked_child_has_its_own_threads():
    subprocess.run([*PYTHON, "-W", "ignore", "-c", AFTER_FORK], check=True, timeout=WAIT_S)


@pytest.mark.parametrize("num_threads", [0, -1, 1025])
def test_bad_number_of_threads(num_threads):
    with pytest.raises(ValueError, match=f"got {num_threads}, expected 1 to 1024"):
        cpu_kernels.set_num_threads(num_threads)
