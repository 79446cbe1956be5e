import subprocess
import sys

import psutil

from qbench.measure.host.conditions import QUIET, busy_share, busy_warning


def test_a_busy_core_is_seen():
    worker = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
    try:
        worker.stdout.readline()  # it runs
        assert busy_share() > 0.5 / psutil.cpu_count()
    finally:
        worker.kill()
        worker.wait()
        worker.stdout.close()


def test_the_warning_has_the_busy_share():
    assert busy_warning(QUIET) is None
    assert "93 % of this machine" in busy_warning(0.93)
