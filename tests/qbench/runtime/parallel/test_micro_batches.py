"""Forward passes in micro-batches: the same bits, the counted messages, and the bubble against its formula."""

from collections import defaultdict
from threading import get_ident
from types import SimpleNamespace

import pytest
import torch
from support.thread_ranks import model_on, run_ranks

from qbench.calibration.open_subject import open_subject
from qbench.run.options import RunOptions
from qbench.run.rank_layout import RankLayout
from qbench.run.work import SpeedWork
from qbench.runtime import load_model
from qbench.runtime.parallel import micro_batches
from qbench.runtime.parallel import model as model_module
from qbench.runtime.parallel.traffic import Traffic, bubble, expected_bubble, expected_traffic
from qbench.sources import open_source
from qbench.speed.rank_bench import measure_exchange
from quant.errors import InputError

PROMPT, NUM_STEPS = 37, 2


def logits(model, batch: int) -> list[torch.Tensor]:
    """Logits of a prompt in two passes, of decode steps, of ragged rows, and of the last tokens alone."""
    tokens = torch.randint(model.config.vocab_size, (batch, 64), generator=torch.Generator().manual_seed(3))
    cache = model.new_cache(batch=batch, capacity=64)
    rows = [model(tokens[:, :20], cache), model(tokens[:, 20:PROMPT], cache)]
    rows += [model(tokens[:, at : at + 1], cache) for at in range(PROMPT, PROMPT + NUM_STEPS)]
    if batch > 1:
        rows.append(model(tokens[:, 40:48], cache, num_valid=[1 + row % 8 for row in range(batch)]))
        rows.append(model(tokens[:, 48:49], cache))
    rows.append(model(tokens, last_only=True))
    return rows


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize(
    ("spec", "kv", "recipe"),
    [("rand:tiny", None, "q4_0"), ("rand:tiny", "kv-int8", None), ("rand:tiny-mla-moe", None, None)],
    ids=str,
)
def test_the_bits_match_one_rank(spec, kv, recipe, batch):
    """In exact products no token depends on the others of its pass."""
    source = open_subject(spec, RunOptions(recipe, kv_format=kv, threads=1)).source
    truth = logits(load_model(source, RunOptions(threads=1), impl="exact"), batch)

    def work(ranks):
        model = model_on(ranks, source, "exact")
        found = logits(model, batch)
        return (
            found,
            ranks.traffic,
            expected_traffic(
                ranks.layout, ranks.rank, ranks.traffic, exchanges=model.exchanges, hidden_size=model.config.hidden_size
            ),
        )

    for found, traffic, formula in run_ranks(RankLayout(pp=2, micro_batches=3), work):
        assert all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in zip(found, truth, strict=True))
        assert (traffic.num_bytes, traffic.num_messages) == formula
        assert traffic.num_parts > traffic.num_passes


def test_a_pass_of_three_parts_has_four_messages():
    """Stage 0 sends three, and gets one back."""
    case = SpeedWork(pp=16, tg=4, depth=3, repetitions=1, batch=4)

    def work(ranks):
        return measure_exchange(model_on(ranks, open_source("rand:tiny")), case, "tg")

    for found in run_ranks(RankLayout(pp=2, micro_batches=3), work):
        assert found.messages_per_pass == found.expected_messages_per_pass == 3 + 1
        assert found.bubble.micro_batches == 3 and found.bubble.expected == pytest.approx(1 / 4)
        assert 0 <= found.bubble.share < 1 and 1 / 4 <= found.bubble.unequal < 1
        assert 0 < found.bubble.exchanged < found.bubble.share


def test_the_embedding_is_work_of_the_first_stage(monkeypatch):
    """A clock of each rank that moves in its embedding alone."""
    looked = defaultdict(float)
    clock = SimpleNamespace(perf_counter=lambda: looked[get_ident()])
    monkeypatch.setattr(model_module, "time", clock)

    def work(ranks):
        model = model_on(ranks, open_source("rand:tiny"))
        find = model.embedding.table.rows

        def rows(index):
            looked[get_ident()] += 1.0
            return find(index)

        monkeypatch.setattr(model.embedding.table, "rows", rows)
        ranks.traffic.restart()
        model(torch.zeros(4, 2, dtype=torch.int64), model.new_cache(batch=4, capacity=2))
        return ranks.traffic.layer_seconds

    assert run_ranks(RankLayout(pp=2, micro_batches=4), work) == [4.0, 0.0]


def test_the_bubble_is_the_time_without_layers():
    """Two stages of 3 parts, 1 s each: 4 s until both are done, of which each works 3."""
    assert bubble([Traffic(stage_seconds=4.0, layer_seconds=3.0)] * 2) == 0.25
    assert expected_bubble([7, 7], 3) == pytest.approx(0.25)
    assert expected_bubble([1] * 4, 1) == pytest.approx(0.75)


@pytest.mark.parametrize("seconds", [(1, 2), (3, 1), (2, 5, 1)])
def test_the_bubble_of_unequal_stages_is_that_of_a_schedule(seconds):
    """A part begins when the stage before has computed it, and this stage has computed the part before it."""
    for num_parts in (1, 2, 5):
        ends = [0] * num_parts
        for own in seconds:
            free = 0
            for part in range(num_parts):
                free = ends[part] = max(free, ends[part]) + own
        share = 1 - num_parts * sum(seconds) / (len(seconds) * ends[-1])
        of_passes = [own * num_parts for own in seconds]
        assert expected_bubble(of_passes, num_parts) == pytest.approx(share)


def test_a_later_stage_has_its_parts_ready_when_they_arrive(monkeypatch):
    """Python that prepares a part takes as long as the layers of a small model."""
    done = defaultdict(list)

    def parts_of(*about):
        for part in micro_batches.parts_of(*about):
            done[get_ident()].append("part")
            yield part

    monkeypatch.setattr(model_module, "parts_of", parts_of)

    def work(ranks):
        model, pass_on = model_on(ranks, open_source("rand:tiny")), ranks.pass_on
        ranks.pass_on = lambda *given: (done[get_ident()].append("message"), pass_on(*given))
        for batch in (3, 1):
            model(torch.zeros(batch, 3, dtype=torch.int64), model.new_cache(batch=batch, capacity=3))
        return done[get_ident()]

    in_turn = ["part", "message"] * 3
    first, last = run_ranks(RankLayout(pp=2, micro_batches=3), work)
    assert first == [*in_turn, "message"] * 2
    assert last == [*["part"] * 3, *["message"] * 3, *in_turn], "parts of one sequence follow each other"


@pytest.mark.parametrize("division", [{}, {"tp": 2}, {"pp": 2, "tp": 2}, {"sp": 2}])
def test_only_stages_have_them(division):
    with pytest.raises(InputError, match="micro-batches are for stages alone"):
        RankLayout(**division, micro_batches=2)
