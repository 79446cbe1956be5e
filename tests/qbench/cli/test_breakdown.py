"""`qbench breakdown`: the parts of a decode step sum to it, and work moves the part that it belongs to."""

import json
import time

import pytest

import cpu_kernels.timeline
from qbench.measure.breakdown import Breakdown
from qbench.measure.host.placement import huge_page_share
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.runtime import load_model
from qbench.sources import open_source
from qbench.speed.breakdown import decode_steps, faster_half

ARGV = ("breakdown", "rand:tiny", "--recipe", "q8_0", "-n", "6", "-d", "5")


def test_parts_sum_to_the_step_in_json_and_table(qbench):
    outcome = qbench(*ARGV, "--threads", "2", "--json")
    found = Breakdown.from_json(json.loads(outcome.out))
    assert (found.facts.model, found.depth, found.steps, found.counted) == ("rand:tiny", 5, 6, 3)
    assert abs(sum(part.seconds for part in found.parts.values()) - found.step_s) < 1e-9
    assert abs(sum(part.share for part in found.parts.values()) - 1) < 1e-9
    kernels = found.parts["products"].share + found.parts["attention"].share
    assert abs(found.outside_share + kernels - 1) < 1e-9
    assert all(found.parts[name].seconds > 0 for name in ("products", "attention", "norms", "rounding", "python"))
    lines = qbench(*ARGV, "--threads", "1", "--cpu-time").out.splitlines()
    assert {line.split()[0] for line in lines[lines.index("") + 2 :]} == set(found.parts)


class SlowModel:
    """30 ms of Python per step."""

    def __init__(self, model):
        self.model, self.config, self.new_cache = model, model.config, model.new_cache

    def __call__(self, *args, **options):
        time.sleep(0.03)
        return self.model(*args, **options)


def test_time_is_counted_for_the_part_that_it_belongs_to():
    model = SlowModel(load_model(open_source("rand:tiny"), RunOptions(threads=1)))
    steps = decode_steps(model, SpeedWork(0, 2))
    assert all(0.03 < parts["python"] for parts in steps)
    # A kernel of a busy machine may wait for a processor, but not in every step.
    assert any(sum(parts.values()) - parts["python"] < parts["python"] for parts in steps)
    cpu = decode_steps(model, SpeedWork(0, 2), cpu_time=True)
    assert min(parts["python"] for parts in cpu) < 0.03, "a thread that sleeps is on no processor"


def test_the_slower_half_does_not_count():
    steps = [{"products": seconds, "python": 1.0} for seconds in (9.0, 1.0, 2.0)]
    assert faster_half(steps) == (2, {"products": 1.5, "python": 1.0})


def test_a_thread_that_does_not_record_has_no_parts():
    with pytest.raises(RuntimeError, match="does not record"):
        cpu_kernels.timeline.timeline_parts()
    with cpu_kernels.timeline.Timeline() as timeline, pytest.raises(ValueError, match="expected one of python"):
        with timeline.part("lunch"):
            pass


def test_huge_pages_of_a_process(tmp_path):
    file = tmp_path / "smaps"
    file.write_text("5-6 ---p 0 00:00 0 [rollup]\nAnonymous:  400 kB\nAnonHugePages: 100 kB\n")
    assert huge_page_share(str(file)) == 0.25 and huge_page_share(str(tmp_path / "none")) is None


@pytest.mark.parametrize(
    "more, message",
    [
        (("-b", "2"), "No such option '-b'"),
        (("-d", "1,2"), "'1,2' is not a valid integer"),
        (("-n", "0"), "0 is not in the range"),
        (("--policy", "full"), "No such option '--policy'"),
        (("rand:tiny",), "unexpected extra argument"),
        (("--cpu-time", "--threads", "2"), "count it with --threads 1"),
    ],
    ids=lambda value: "_".join(value) if isinstance(value, tuple) else "",
)
def test_an_impossible_breakdown_is_refused(qbench, more, message):
    outcome = qbench(*ARGV, *more)
    assert outcome.status == 2 and message in outcome.err and not outcome.out
