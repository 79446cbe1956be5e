from pathlib import Path

import pytest

from qbench.measure.host.machine import (
    installed_gib,
    last_level_cache_bytes,
    machine,
    processor_text,
    processors_text,
)


@pytest.mark.parametrize(("seen_gib", "installed"), [(23.54, 24), (23.49, 24), (24.0, 24), (15.6, 16), (1.9, 4)])
def test_memory_reserved_by_a_kernel_does_not_change_the_machine(seen_gib, installed):
    assert installed_gib(int(seen_gib * 2**30)) == installed


def test_a_processor_is_named_by_the_fields_that_its_system_gives():
    assert processor_text({"cpu family": "26", "model": "2", "model name": "AMD EPYC"}) == "family 26, model 2"
    assert processor_text({"CPU implementer": "0x41", "CPU part": "0xd40"}) == "implementer 0x41, part 0xd40"
    assert processor_text({"model name": "?"}) == ""


def test_this_machine_names_its_processor():
    fields = dict(line.split("\t", 1) for line in Path("/proc/cpuinfo").read_text().splitlines() if "\t" in line)
    text = machine().to_json().get("processor")
    assert all(fields[name].strip("\t: ") in str(text) for name in ("cpu family", "CPU part") if name in fields)


def test_a_note_names_the_processors_of_one_machine_id():
    old, zen5 = ("AMD EPYC", None), ("AMD EPYC", "family 26, model 2")
    assert processors_text([old, old]) == ""
    assert processors_text([old, zen5, zen5]) == ": AMD EPYC (unknown), AMD EPYC (family 26, model 2)"


@pytest.mark.skipif(not Path("/sys/devices/system/cpu/cpu0/cache/index3").exists(), reason="the system names no cache")
def test_the_last_cache_is_larger_than_the_one_before():
    assert last_level_cache_bytes() > 1 << 20
