import time
from types import SimpleNamespace

import pytest
import torch
from support.close import assert_close

from qbench.measure.host.conditions import Conditions
from qbench.run.work import SpeedWork
from qbench.speed.rounds import Rounds, Samples
from qbench.speed.speed import measure_speed, speed_statistics
from quant.errors import InputError

VOCAB = 11


class RecordingCache:
    seq_len, size_bytes, peak_bytes, tokens_read, tier_reads = 0, 48, None, None, None

    def mark(self) -> None:
        """Evicts nothing"""

    def truncate(self, seq_len: int) -> None:
        assert seq_len <= self.seq_len
        self.seq_len = seq_len


class RecordingModel:
    """Notes each pass as (tokens already held, tokens of the pass)."""

    config = SimpleNamespace(max_positions=100, vocab_size=VOCAB)

    def __init__(self, pause_s: float = 0.0) -> None:
        self.passes: list[tuple[int, int]] = []
        self.pause_s = pause_s

    def new_cache(self, batch: int, capacity: int) -> RecordingCache:
        self.batch, self.capacity = batch, capacity
        return RecordingCache()

    def __call__(self, tokens, cache, last_only: bool):
        assert last_only and tokens.shape[0] == self.batch and 0 <= tokens.min() and tokens.max() < VOCAB
        self.passes.append((cache.seq_len, tokens.shape[1]))
        cache.seq_len += tokens.shape[1]
        assert cache.seq_len <= self.capacity
        time.sleep(self.pause_s)
        return torch.zeros(1, 1, VOCAB)


def test_passes_match_llama_bench():
    model = RecordingModel()
    result = measure_speed(model, SpeedWork(pp=8, tg=5, depth=10, repetitions=2)).to_json()
    repetition = [(10, 8), *((10 + i, 1) for i in range(5))]
    assert model.passes == [(0, 10), *(3 * repetition)], "the first is a warm-up"
    assert [len(result["samples"]["warm_up"][key]) for key in ("pp_tok_s", "tg_tok_s")] == [1, 1]


def test_a_batch_counts_the_tokens_of_all_its_sequences():
    model = RecordingModel(pause_s=0.005)
    result = measure_speed(model, SpeedWork(pp=8, tg=4, depth=3, batch=5, repetitions=1)).to_json()
    assert model.batch == 5
    assert_close(result["pp_tok_s"] * result["ttft_ms"], 5 * 8 * 1e3, rtol=2.0**-50)
    assert_close(result["tg_tok_s"] * result["tpot_ms"], 5 * 1e3, rtol=2.0**-50)


@pytest.mark.parametrize("pp, tg", [(8, 0), (0, 5)], ids=["prefill alone", "decode alone"])
def test_phases_that_are_not_wanted_are_absent(pp, tg):
    result = measure_speed(RecordingModel(), SpeedWork(pp=pp, tg=tg, repetitions=3)).to_json()
    assert (result["pp_tok_s"] is None) == (result["ttft_ms"] is None) == (pp == 0)
    assert (result["tg_tok_s"] is None) == (result["tpot_ms"] is None) == (tg == 0)
    assert len(result["samples"]["pp_tok_s" if pp else "tg_tok_s"]) == 3


def samples(*seconds: float) -> Samples:
    return Samples(list(seconds), [Conditions(2600.0, None, 1.5, 0.0)] * len(seconds))


def test_units_follow_from_tokens_and_seconds():
    rounds = Rounds({"pp": [samples(9.0, 0.5, 0.25, 1.0)], "tg": [samples(9.0, 2.0, 2.0, 2.0)]})
    result = speed_statistics(SpeedWork(pp=100, tg=10, repetitions=3), rounds, 0).to_json()
    assert result["pp_tok_s"] == 200 and result["ttft_ms"] == 500
    assert result["tg_tok_s"] == 5 and result["tpot_ms"] == 200
    assert result["samples"]["pp_tok_s"] == [200, 400, 100]
    assert result["spread"]["pp_tok_s"] == {"median": 200, "min": 100, "max": 400, "mad": 100}


def test_clock_covers_the_passes():
    result = measure_speed(RecordingModel(pause_s=0.01), SpeedWork(pp=8, tg=4, repetitions=2)).to_json()
    assert max(result["samples"]["pp_tok_s"]) <= 8 / 0.01 and max(result["samples"]["tg_tok_s"]) <= 1 / 0.01


@pytest.mark.parametrize(
    "sizes, told",
    [
        pytest.param({"pp": 101}, "need 128 tokens", id="longer than the context"),
        pytest.param({"pp": 8, "tg": 8, "depth": 95}, "need 103 tokens", id="depth counts"),
        pytest.param({"pp": 0, "tg": 0}, "nothing to measure", id="nothing"),
        pytest.param({"repetitions": 0}, "repetitions is 0", id="no repetitions"),
        pytest.param({"depth": -1}, "depth is -1", id="negative"),
    ],
)
def test_sizes_that_cannot_be_measured(sizes, told):
    with pytest.raises(InputError, match=told):
        measure_speed(RecordingModel(), SpeedWork(**sizes))


def test_progress_counts_repetitions():
    told = []
    measure_speed(RecordingModel(), SpeedWork(pp=2, tg=2, repetitions=2), progress=lambda *state: told.append(state))
    assert told == [(done, 2, "repetitions") for done in (0, 1, 2)]


def test_samples_are_finite_rates():
    result = measure_speed(RecordingModel(), SpeedWork(pp=4, tg=4)).to_json()
    assert_close(result["spread"]["tg_tok_s"]["median"], result["tg_tok_s"])
