"""Streamed weights: the same logits bit for bit, whatever part of the model is in memory."""

import gc
import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from support.artifact import write_artifact
from support.close import assert_close
from support.waits import WAIT_S

from qbench.run.options import RunOptions
from qbench.runtime import load_model
from qbench.runtime.offload.direct_file import DirectFile
from qbench.runtime.offload.placement import least_bytes, split_experts
from qbench.runtime.offload.stream_file import stream_path
from qbench.sources import open_source
from quant.errors import InputError
from quant.recipes import get_recipe

PROMPT, STEPS = 12, 3


def all_logits(model, **cache) -> list[torch.Tensor]:
    """Logits of steps and a prompt of two sequences, and of all positions without a cache."""
    tokens = torch.from_numpy(np.random.default_rng(0).integers(0, model.config.vocab_size, (2, PROMPT)))
    past = model.new_cache(2, 64, **cache)
    steps = [model(tokens[:, [step]], past) for step in range(STEPS)]
    return [*steps, model(tokens, past, last_only=True), model(tokens)]


def assert_equal(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))


def sizes(model) -> tuple[int, int]:
    """The fewest bytes of weights that work, and those of all units"""
    weights = model.weights
    always, experts = ([weights.region.held_bytes(unit.name) for unit in some] for some in split_experts(weights.units))
    least = max(always) + max(experts, default=0)
    assert least == least_bytes(weights.units)
    return least, sum(always) + sum(experts)


@pytest.mark.parametrize("spec", ["ref:llama", "ref:mla-moe"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0], ids=["least memory", "half of it", "all of it"])
def test_logits_match_the_model_in_memory(spec, share, offloaded):
    source = open_source(spec)
    least, whole = sizes(offloaded(source, 0))
    model = offloaded(source, least + round(share * (whole - least)))
    in_memory = load_model(source)
    assert_equal(all_logits(model), all_logits(in_memory))
    assert model.impls == in_memory.impls  # by name: a roofline looks them up
    reads, stored = model.weights.streamer.read_bytes, sum(unit.size_bytes for unit in model.weights.units)
    if share < 1:
        assert reads > stored
    else:  # an expert that no token chose is not read
        assert reads <= stored and (reads == stored) == (model.config.moe is None)


def test_the_head_is_read_once_for_all_pieces_of_logits(offloaded, monkeypatch):
    source, tokens = open_source("ref:llama"), torch.tensor([[1, 2, 3, 4]])
    model = offloaded(source, sizes(offloaded(source, 0))[0])
    expected = model(tokens)
    outputs = model.without_head()(tokens)
    given_up = []
    done = model.weights.streamer.done
    monkeypatch.setattr(model.weights.streamer, "done", lambda unit: [given_up.append(unit), done(unit)])
    pieces = [model.logits(outputs[:, part]) for part in (slice(0, 2), slice(2, 4))]
    assert given_up == ["layer 3"]
    assert_close(torch.cat(pieces, 1), expected)
    assert torch.equal(model(tokens), expected)
    assert given_up[1] == "head"


def test_weights_get_no_more_than_they_may(offloaded):
    source = open_source("ref:llama")
    least, whole = sizes(offloaded(source, 0))
    model, half = offloaded(source, whole), (least + whole) // 2
    model.weights.most_bytes = half
    assert_equal(all_logits(model), all_logits(load_model(source)))
    shares = model.weights.shares
    assert shares.streamed_bytes > 0 and shares.pinned_bytes + shares.ring_bytes <= half


@pytest.mark.parametrize("recipe", ["rtn-w4g128", "rtn-w8a8", "llm-int8"])
def test_every_kind_of_folder(recipe, offloaded, tmp_path):
    """Weights of LLM.int8() have kernels of another kind: they stay in memory, the others come and go."""
    path = write_artifact(open_source("ref:llama"), tmp_path / "model", recipe=get_recipe(recipe))
    source = open_source(str(path))
    model = offloaded(source, sizes(offloaded(source, 0))[0])
    assert_equal(all_logits(model), all_logits(load_model(source)))
    assert stream_path(source) == tmp_path / "model" / "weights.qbstream"


@pytest.mark.parametrize("recipe", ["q8_0", "q4_0", "q5_1", "q4_k_m", "q6_k", "iq4_nl", "bf16"])
def test_every_format_of_a_gguf_file(recipe, offloaded, tmp_path):
    path = write_artifact(open_source("ref:llama"), tmp_path / "model.gguf", recipe=get_recipe(recipe))
    source = open_source(str(path))
    model = offloaded(source, sizes(offloaded(source, 0))[0])
    assert_equal(all_logits(model), all_logits(load_model(source)))
    assert stream_path(source) == tmp_path / "model.gguf.qbstream"


def test_a_cache_of_another_layout_and_compute_exact(offloaded):
    source = open_source("ref:llama")
    least, _ = sizes(offloaded(source, 0))
    for options in ({"cache": "paged"}, {"compute": "exact"}, {"policy": "window:8"}):
        expected = all_logits(load_model(source, RunOptions(**options)))
        assert_equal(all_logits(offloaded(source, least, **options)), expected)


def test_a_pass_that_breaks_off_is_followed_by_a_good_one(offloaded):
    """Units in the middle of the order are in memory when the next pass begins with the first."""
    source = open_source("ref:llama")
    model = offloaded(source, sizes(offloaded(source, 0))[0])
    expected = all_logits(load_model(source))

    def fail():
        raise RuntimeError("broken off")

    model.weights.budget.weight_bytes = lambda *_: sizes(model)[0]
    for block in model.blocks:
        block.before, before = fail, block.before
        with pytest.raises(RuntimeError, match="broken off"):
            all_logits(model)
        block.before = before
    assert_equal(all_logits(model), expected)


def test_a_pass_that_breaks_off_when_the_order_came_round(offloaded):
    """The next unit is the one that is asked for, but those that nobody used leave it no room."""
    model = offloaded(open_source("ref:llama"), 1 << 40)
    streamer, names = model.weights.streamer, [unit.name for unit in model.weights.units]
    held = [model.weights.region.held_bytes(name) for name in names]
    streamer.stream(names, sum(held[1:]))
    streamer.need(names[0])
    streamer.done(names[0])
    for name in names[1:]:
        streamer.need(name)  # all but the first are there, which would be read next
    asking = threading.Thread(target=streamer.need, args=(names[0],), daemon=True)
    asking.start()
    asking.join(timeout=WAIT_S)
    assert not asking.is_alive()


def test_memory_that_shrinks_and_grows_between_passes(offloaded):
    source = open_source("ref:llama")
    model = offloaded(source, 0)
    least, whole = sizes(model)
    expected = all_logits(load_model(source))
    for weight_bytes in (whole, least, (least + whole) // 2, least, whole):
        model.weights.budget.weight_bytes = lambda *_, size=weight_bytes: size
        assert_equal(all_logits(model), expected)
        assert model.weights.streamer.resident_bytes <= weight_bytes


def test_a_look_at_memory_while_weights_are_read_moves_nothing(offloaded, monkeypatch):
    """The process grows between the count of its weights and that of its memory, so the second look is at rest."""
    source = open_source("ref:llama")
    least, whole = sizes(offloaded(source, 0))
    model, reading, looks = offloaded(source, 0), [], []
    read_into = DirectFile.read_into

    def read(file, memory, start):
        reading.append(start)
        read_into(file, memory, start)
        reading.remove(start)

    def weight_bytes(*_):
        looks.append(len(reading))
        return (least + whole) // 2 if len(looks) != 3 else least  # the first pass looks twice

    monkeypatch.setattr(DirectFile, "read_into", read)
    model.weights.budget.weight_bytes = weight_bytes
    shares = [all_logits(model) and model.weights.shares for _ in range(2)]
    assert shares[0] == shares[1] and shares[0].streamed_bytes > 0
    assert looks[1] == looks[3] == 0


def test_a_model_that_goes_closes_its_files_and_ends_its_threads(offloaded, tmp_path):
    def open_streams() -> list[Path]:
        links = [Path("/proc/self/fd", name) for name in os.listdir("/proc/self/fd")]
        return [link for link in links if link.exists() and link.resolve().is_relative_to(tmp_path)]

    threads = set(threading.enumerate())
    model = offloaded(open_source("ref:llama"), 1 << 30)
    readers = set(threading.enumerate()) - threads
    assert len(open_streams()) == 2 and readers  # one reads units, one rows of the embedding
    del model
    gc.collect()
    for reader in readers:
        reader.join(timeout=WAIT_S)
    gc.collect()
    assert not any(reader.is_alive() for reader in readers)
    assert not open_streams()


def test_a_limit_below_one_layer_names_the_smallest(offloaded):
    source = open_source("ref:llama")
    model = offloaded(source, 0)
    least, _ = sizes(model)
    model.weights.budget.weight_bytes = lambda *_: least - 1
    with pytest.raises(InputError, match="the smallest that works here is 1048577MiB"):
        all_logits(model)


@pytest.mark.parametrize("options", [{"recipe": "q4_0"}, {"device": "cuda"}])
def test_options_that_do_not_go_with_a_limit(options):
    with pytest.raises(InputError, match="as it is stored, on the CPU"):
        RunOptions(memory_bytes=1 << 30, **options)


def test_compute_without_packed_weights_is_refused():
    with pytest.raises(InputError, match="use compute fast or exact"):
        load_model(open_source("ref:llama"), RunOptions(memory_bytes=1 << 30, compute="float32"))
