"""Clock, heat, load and the share of other processes, from a tree of files as Linux has them."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from qbench.measure.host.conditions import Conditions, Watch, clock_mhz, load, temperature_c


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def counters(root: Path, user: int, idle: int, steal: int, own: int) -> None:
    write(
        root,
        {
            "proc/stat": f"cpu  {user} 0 0 {idle} 0 0 0 {steal} 0 0\ncpu0 1 1 1 1\n",
            "proc/7/stat": f"7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 {own} 0 0 0 20 0 1 0 1 1 1\n",
        },
    )


def test_a_full_tree(tmp_path):
    write(
        tmp_path,
        {
            **{
                f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq": f"{core + 1}000000\n" for core in range(4)
            },
            "sys/class/thermal/thermal_zone0/temp": "41000\n",
            "sys/class/thermal/thermal_zone1/temp": "63500\n",
            "proc/loadavg": "1.25 0.50 0.25 2/345 6789\n",
        },
    )
    counters(tmp_path, user=100, idle=900, steal=0, own=50)
    watch = Watch(7, threads=2, root=tmp_path)
    watch.start()
    counters(tmp_path, user=160, idle=930, steal=10, own=90)  # 100 ticks: 60 busy, 10 stolen, 40 its own
    found = replace(watch.stop(), seconds=0.0)
    assert found == Conditions(clock_mhz=3500.0, temperature_c=63.5, load=1.25, busy_by_others=0.3)


def test_the_clock_of_a_machine_without_a_frequency_driver(tmp_path):
    write(
        tmp_path,
        {"proc/cpuinfo": "processor : 0\ncpu MHz\t\t: 2600.5\nflags : a\n\nprocessor : 1\ncpu MHz\t\t: 2599.5\n"},
    )
    assert clock_mhz(1, tmp_path) == 2600.5 and clock_mhz(8, tmp_path) == 2600.0


def test_unreported_conditions_are_absent(tmp_path):
    watch = Watch(7, threads=1, root=tmp_path)
    watch.start()
    assert replace(watch.stop(), seconds=0.0) == Conditions(None, None, None, None)
    assert clock_mhz(1, tmp_path) is load(tmp_path) is temperature_c(tmp_path) is None


def test_a_span_too_short_for_the_counters_has_no_share(tmp_path):
    counters(tmp_path, user=100, idle=900, steal=0, own=50)
    watch = Watch(7, threads=1, root=tmp_path)
    watch.start()
    counters(tmp_path, user=102, idle=900, steal=0, own=50)
    assert watch.stop().busy_by_others is None


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="no /proc here")
def test_this_machine():
    watch = Watch(os.getpid(), threads=1)
    watch.start()
    sum(value * value for value in range(3_000_000))
    assert 0 <= watch.stop().busy_by_others <= 1
