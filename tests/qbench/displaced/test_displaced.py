"""Displaced patches: the pictures of one rank if all steps wait, those of a textbook loop if they do not, and bytes."""

import pytest
import torch
from support.thread_ranks import run_ranks

from qbench.displaced.dit import (
    KINDS,
    NUM_BLOCKS,
    NUM_TOKENS,
    PATCH,
    WIDTH,
    Dit,
    attend_ref,
    patches,
    pictures,
    shapes,
    trained,
)
from qbench.displaced.measure import frechet_distance, measure_patches, psnr_db
from qbench.displaced.sampler import NEVER, PatchSampler, Schedule, sample_ref
from qbench.run.rank_layout import RankLayout
from quant.errors import InputError

BATCH, STEPS = 3, 6


@pytest.fixture(scope="module")
def model() -> Dit:
    """Random weights, so that a picture depends on all of them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Dit()
        for block in model.blocks:
            torch.nn.init.normal_(block.change.weight, std=0.3)
    return model.eval().requires_grad_(False)


def inputs():
    draw = torch.Generator().manual_seed(4)
    return torch.randn(BATCH, NUM_TOKENS, PATCH**2, generator=draw), torch.arange(BATCH) % len(KINDS)


def on_ranks(model: Dit, num_ranks: int, schedule: Schedule):
    """Pictures and bytes of each rank"""

    def work(ranks):
        found = PatchSampler(model, ranks).sample(*inputs(), schedule)
        return found, ranks.traffic.num_bytes

    return run_ranks(RankLayout(sp=num_ranks), work)


def textbook(model: Dit, schedule: Schedule) -> torch.Tensor:
    """Two ranks one after the other, without messages: each reads the other's activations of an older step."""
    noise, kinds = inputs()
    halves = [slice(0, NUM_TOKENS // 2), slice(NUM_TOKENS // 2, NUM_TOKENS)]
    x, shown = [noise[:, half] for half in halves], {}
    for step in range(schedule.steps):
        time = torch.full((BATCH,), step / schedule.steps)
        if step < schedule.warm_up:
            whole = model(torch.cat(x, 1), time, kinds, slice(None), keeper(shown, halves))
            x = [each + whole[:, half] / schedule.steps for each, half in zip(x, halves, strict=True)]
            continue
        fresh, moved = {}, []
        for rank, half in enumerate(halves):

            def attend(layer, q, k, v, rank=rank, fresh=fresh, shown=shown):
                fresh[layer, rank] = (k, v)
                pairs = [(k, v) if other == rank else shown[layer, other] for other in range(2)]
                return attend_ref(layer, q, *(torch.cat(each, 1) for each in zip(*pairs, strict=True)))

            moved.append(x[rank] + model(x[rank], time, kinds, half, attend) / schedule.steps)
        x = moved
        if schedule.refresh and (step - schedule.warm_up) % schedule.refresh == 0:
            shown |= fresh
    return pictures(torch.cat(x, 1))


def keeper(shown, halves):
    def attend(layer, q, k, v):
        shown.update({(layer, rank): (k[:, half], v[:, half]) for rank, half in enumerate(halves)})
        return attend_ref(layer, q, k, v)

    return attend


@pytest.mark.parametrize("num_ranks", [1, 2, 3])
def test_steps_that_wait_give_the_pictures_of_one_rank(model, num_ranks):
    expected = sample_ref(model, *inputs(), STEPS)
    for found, _ in on_ranks(model, num_ranks, Schedule(STEPS, STEPS)):
        assert (found - expected).abs().max() <= expected.abs().max() * 1e-5


@pytest.mark.parametrize("schedule", [Schedule(STEPS, 2, 1), Schedule(STEPS, 1, 2), Schedule(STEPS, 1, NEVER)], ids=str)
def test_later_steps_read_the_activations_of_older_ones(model, schedule):
    expected, whole = textbook(model, schedule), sample_ref(model, *inputs(), STEPS)
    assert (expected - whole).abs().max() > whole.abs().max() * 1e-3, "it is an approximation"
    for found, _ in on_ranks(model, 2, schedule):
        assert (found - expected).abs().max() <= expected.abs().max() * 1e-5


@pytest.mark.parametrize(
    ("schedule", "exchanges"),
    [(Schedule(6, 6), 6), (Schedule(6, 2, 1), 2 + 3), (Schedule(6, 1, 2), 1 + 2), (Schedule(6, 1, NEVER), 1)],
    ids=str,
)
def test_bytes_match_keys_and_values_of_all_exchanges(model, schedule, exchanges):
    of_ranks = on_ranks(model, 2, schedule)
    by_hand = 4 * BATCH * NUM_TOKENS * (exchanges * NUM_BLOCKS * 2 * WIDTH + PATCH**2)
    assert sum(sent for _, sent in of_ranks) == by_hand
    assert (
        PatchSampler(model, run_ranks(RankLayout(sp=2), lambda ranks: ranks)[0]).num_bytes(BATCH, schedule) == by_hand
    )


def test_patches_have_an_inverse():
    x, _ = shapes(5, 0)
    assert torch.equal(pictures(patches(x)), x)
    assert patches(x)[0, 1].tolist() == x[0, :2, 2:4].flatten().tolist()


def test_signal_to_noise_and_distance_by_hand():
    x, _ = shapes(64, 0)
    assert psnr_db(x, x) is None and psnr_db(x + 0.02, x) == pytest.approx(40, abs=1e-3)
    assert frechet_distance(x, x) == pytest.approx(0, abs=1e-6)
    assert frechet_distance(x + 0.5, x) == pytest.approx(16 * 0.25, abs=1e-5)


def test_impossible_options_are_refused(model):
    with pytest.raises(InputError, match="9 ranks are more than the 8 rows of patches"):
        on_ranks(model, 9, Schedule(STEPS, STEPS))
    with pytest.raises(InputError, match="got 6 steps, warm-up 7, refresh 1"):
        Schedule(6, 7)


@pytest.mark.exhaustive("trains for seconds")
def test_more_exchanges_are_nearer_to_one_rank():
    model = trained(150)
    schedules = [Schedule(12, 12), Schedule(12, 4, 1), Schedule(12, 1, NEVER)]
    rows, _ = run_ranks(RankLayout(sp=2), lambda ranks: list(measure_patches(model, ranks, schedules, 64)))
    assert rows[1].psnr_db > rows[2].psnr_db + 3
    assert rows[1].bytes_per_picture > rows[2].bytes_per_picture
    assert all(row.bytes_per_picture == row.expected_bytes_per_picture for row in rows)
    noise = torch.randn(64, 16, 16, generator=torch.Generator().manual_seed(1))
    assert rows[0].one_rank_distance < frechet_distance(noise, shapes(64, 2)[0]) / 2
