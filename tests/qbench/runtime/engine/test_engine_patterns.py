"""Prefill patterns under continuous batching: each request gets the text that it gets alone."""

from random import Random

import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.engine_runs import texts_alone, texts_together

from qbench.run.options import RunOptions
from qbench.runtime import Model, load_model
from qbench.runtime.cache_suits import check_engine_source
from qbench.runtime.engine import Engine, EngineOptions, Request
from qbench.runtime.text.sampling import Sampling
from quant.errors import InputError

NUM_NEW = 30
LENGTHS = (700, 7, 430, 1, 300)
SCHEDULES = {
    "all at once": EngineOptions(num_pages=400, max_batch=8, prefill_chunk=4096),
    "small steps": EngineOptions(num_pages=400, max_batch=8, prefill_chunk=16),
    "preempted": EngineOptions(num_pages=47, max_batch=4, prefill_chunk=64),
    "swapped": EngineOptions(num_pages=47, max_batch=4, prefill_chunk=64, preempt="swap"),
}


def source() -> ArraySource:
    config = small_config(head_dim=32, max_position_embeddings=1024)
    values = random_weights(config)
    return ArraySource(config, values, {name: "q8_0" for name, value in values.items() if value.ndim == 2})


def model_of(pattern: str, **options) -> Model:
    return load_model(source(), RunOptions(prefill=pattern, compute="exact", **options))


def requests() -> list[Request]:
    draw = Random(0)
    prompts = [tuple(draw.randrange(1, 150) for _ in range(length)) for length in LENGTHS]
    prompts.append(prompts[0][:512])  # a prefix of another, whose keys and values differ under a pattern
    return [Request(prompt, Sampling(), NUM_NEW, stop_ids=()) for prompt in prompts]


def run(engine: Engine) -> list[tuple[int, ...]]:
    return texts_together(engine, requests())


def alone(model: Model) -> list[tuple[int, ...]]:
    return texts_alone(model, requests())


@pytest.mark.parametrize(
    "pattern, schedule",
    [
        *((pattern, schedule) for pattern in ("star:128", "xattention:0.5") for schedule in SCHEDULES),
        *((pattern, "preempted") for pattern in ("segment-state", "minference", "flexprefill:0.5")),
    ],
)
def test_each_request_gets_its_separate_text(pattern, schedule):
    model = model_of(pattern)
    expected = alone(model)
    engine = Engine(model, SCHEDULES[schedule])
    assert run(engine) == expected
    if schedule in ("preempted", "swapped"):
        assert engine.scheduler.num_preemptions > 0
    assert run(engine) == expected, "the same again: no page of the first time is shared"


def test_the_pattern_is_in_force():
    """The texts would also be equal if both were dense."""
    model, dense = model_of("star:128"), model_of("dense")
    assert run(Engine(model, SCHEDULES["all at once"])) != alone(dense)
    assert 0 < model.prefill_tally.mean_blocks < 1


def test_prompts_pass_whole_and_share_no_pages():
    engine = Engine(model_of("star:128"), SCHEDULES["small steps"])
    run(engine)
    stats = engine.stats()
    assert stats.prefix_pages == stats.prefix_hit_tokens == 0
    assert engine.caches.num_next(0, 700, 700) == 700


def test_a_kv_format_without_patterns_is_refused():
    with pytest.raises(InputError, match="ALiBi, which prefill pattern star cannot compute"):
        config = small_config("bloom")
        check_engine_source(ArraySource(config, random_weights(config)), RunOptions(prefill="star"))
