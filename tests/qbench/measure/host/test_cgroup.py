"""Quotas of control groups of both versions, from trees of files, and one from the kernel if it lets us."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from qbench.measure.host import machine as machines
from qbench.measure.host.cgroup import cpu_quota, memory_limit_bytes

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
V1 = (
    "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "36 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
)
OWN_V1 = "4:cpuset:/other\n3:cpu,cpuacct:/{0}\n2:memory:/{0}\n0::/\n"
DOCKER = V1.replace("0:29 / ", "0:29 /docker/1f ").replace("0:32 / ", "0:32 /docker/1f ")
CPU, MEMORY = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/memory"


def tree(root: Path, mountinfo: str, cgroup: str, files: dict[str, str]) -> Path:
    files = {"proc/self/mountinfo": mountinfo, "proc/self/cgroup": cgroup, **files}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("mountinfo", "cgroup", "files", "quota"),
    [
        pytest.param(V2, "0::/\n", {"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 1.5, id="v2 container"),
        pytest.param(V2, "0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "max 100000\n"}, None, id="v2 without a limit"),
        pytest.param(V2, "0::/a/b\n", {"sys/fs/cgroup/a/b/cpu.max": "400000 100000\n",
                                       "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, 0.5, id="v2 of a group around"),
        pytest.param(V2, "0::/../x\n", {"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2.0, id="outside"),
        pytest.param(V1, OWN_V1.format(""), {f"{CPU}/cpu.cfs_quota_us": "-1\n", f"{CPU}/cpu.cfs_period_us": "100000\n"},
                     None, id="v1 without a limit"),
        pytest.param(V1, OWN_V1.format("job/7"), {f"{CPU}/job/7/cpu.cfs_quota_us": "100000\n",
                                                  f"{CPU}/job/7/cpu.cfs_period_us": "50000\n"}, 2.0, id="v1 nested"),
        pytest.param(DOCKER, OWN_V1.format("docker/1f"), {f"{CPU}/cpu.cfs_quota_us": "75000\n",
                                                             f"{CPU}/cpu.cfs_period_us": "100000\n"}, 0.75,
                     id="docker"),
        pytest.param("", "", {}, None, id="another system"),
        pytest.param("30 23 0:26 / /sys - sysfs sysfs rw\n", "junk\n", {}, None, id="no groups"),
        pytest.param(V2, "0::/\n", {"sys/fs/cgroup/cpu.max": "100000 0\n"}, None, id="no period"),
    ],
)  # fmt: skip
def test_quota_of_processors(tmp_path, mountinfo, cgroup, files, quota):
    assert cpu_quota(tree(tmp_path, mountinfo, cgroup, files)) == quota


@pytest.mark.parametrize(
    ("mountinfo", "cgroup", "files", "limit"),
    [
        pytest.param(V2, "0::/a\n", {"sys/fs/cgroup/a/memory.max": "1048576\n", "sys/fs/cgroup/memory.max": "max\n"},
                     1 << 20, id="v2"),
        pytest.param(V1, OWN_V1.format("a/b"), {f"{MEMORY}/a/memory.limit_in_bytes": "2097152\n",
                                                f"{MEMORY}/a/b/memory.limit_in_bytes": "9223372036854771712\n"},
                     2 << 20, id="v1 of a group around"),
        pytest.param(V1, OWN_V1.format(""), {}, None, id="unread"),
    ],
)  # fmt: skip
def test_limit_of_memory(tmp_path, mountinfo, cgroup, files, limit):
    assert memory_limit_bytes(tree(tmp_path, mountinfo, cgroup, files)) == limit


@pytest.mark.parametrize(("quota", "cores"), [(None, 8), (0.5, 1), (2.5, 2), (64.0, 8)])
def test_threads_by_default_match_the_quota(monkeypatch, quota, cores):
    monkeypatch.setattr(machines, "cpu_quota", lambda: quota)
    monkeypatch.setattr(machines, "_scheduled_cores", lambda: 8)
    assert machines.available_cores() == cores
    found = machines.machine.__wrapped__()
    assert found.cores == cores and found.cpu_quota == (None if quota in (None, 64.0) else quota)
    monkeypatch.setattr(machines, "cpu_quota", lambda: None)
    assert (found.id == machines.machine.__wrapped__().id) == (found.cpu_quota is None)


GROUP = Path("/sys/fs/cgroup/cpu") / f"qbench-{os.getpid()}"  # version 1


@pytest.mark.skipif(not os.access(GROUP.parent / "cgroup.procs", os.W_OK), reason="needs the cpu controller and root")
def test_a_quota_of_the_kernel_is_read():
    GROUP.mkdir()
    try:
        (GROUP / "cpu.cfs_quota_us").write_text("100000")
        code = (
            "from qbench.measure.host.machine import available_cores as cores, machine; print(cores(), machine().cores)"
        )
        join = f'echo $$ > {GROUP}/cgroup.procs && exec "$@"'
        done = subprocess.run(
            ["sh", "-c", join, "sh", sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert done.stdout.split() == ["1", "1"], done.stderr
    finally:
        GROUP.rmdir()
