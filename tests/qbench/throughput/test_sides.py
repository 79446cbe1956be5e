"""All ways through the jobs end in the same tokens, and count their computed tokens."""

import pytest
from support.artifact import write_artifact
from support.llama_package import skip_without_llama_cpp
from support.memory_source import MemorySource

from qbench.run.options import RunOptions
from qbench.runtime import Sampling, generate, load_model
from qbench.runtime.engine import EngineOptions
from qbench.speed.timed_process import TimedProcess
from qbench.throughput.run import llama_cpp_run, measure_throughput
from qbench.throughput.sides import EngineSide, StaticSide
from qbench.throughput.workload import Workload
from qbench.versus.llama_cpp import WORKER
from quant.errors import InputError
from quant.recipes import get_recipe

JOBS = Workload(9, (3, 40), (1, 20), seed=1).jobs(300)


@pytest.fixture(scope="module")
def model():
    return load_model(MemorySource(), RunOptions(compute="exact", threads=1))


def alone(model) -> list[tuple[int, ...]]:
    return [generate(model, job.tokens, Sampling(), job.num_new, stop_ids=()).tokens for job in JOBS]


def test_the_engine_gives_every_job_its_separate_result(model):
    outcome = EngineSide(model, EngineOptions(num_pages=40, max_batch=4)).run(JOBS)
    assert outcome.tokens == alone(model)
    assert all(0 < first <= outcome.seconds for first in outcome.first_s)
    prefill = sum(len(job.tokens) for job in JOBS)
    assert outcome.computed == prefill + sum(job.num_new - 1 for job in JOBS), "no prefix is shared in this workload"


def test_static_batches_do_and_compute_until_the_longest_ends(model):
    outcome = StaticSide(model, 4).run(JOBS)
    assert outcome.tokens == alone(model)
    steps = sum(len(part) * (max(job.num_new for job in part) - 1) for part in (JOBS[:4], JOBS[4:8], JOBS[8:]))
    assert outcome.computed == sum(len(job.tokens) for job in JOBS) + steps
    assert outcome.first_s == sorted(outcome.first_s)


def test_llama_cpp_gives_the_same_side_by_side_and_one_by_one(tmp_path):
    skip_without_llama_cpp()
    file = write_artifact(MemorySource(), tmp_path / "m.gguf", recipe=get_recipe("bf16"))
    settings = {"model": str(file), "threads": 1, "slots": 4, "context": 64, "kv": "f32", "clock": "cpu"}
    with TimedProcess("llama.cpp", WORKER, settings) as process:
        many, one = (llama_cpp_run(process, slots)(JOBS) for slots in (4, 1))
    assert [len(tokens) for tokens in one.tokens] == [job.num_new for job in JOBS]
    assert many.tokens == one.tokens
    assert many.computed == one.computed == sum(len(job.tokens) + job.num_new - 1 for job in JOBS)


def test_a_workload_beyond_the_context_is_named():
    with pytest.raises(InputError, match="requests of up to 1200 tokens, but the model's context holds 1024"):
        measure_throughput("ref:llama", Workload(1, (1, 1000), (1, 200)), RunOptions(threads=1))
