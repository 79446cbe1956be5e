"""Both sides run the same passes, in turn; impossible comparisons are refused in one line."""

import os
import sys
from types import SimpleNamespace

import pytest
from support.architectures import random_weights, small_config
from support.array_source import ArraySource
from support.artifact import write_artifact
from support.llama_package import skip_without_llama_cpp
from support.memory_source import MemorySource
from support.waits import WAIT_S

import qbench
from qbench.measure.host.llama_cpp_package import VARIABLE
from qbench.run.options import RunOptions
from qbench.run.work import SpeedWork
from qbench.runtime import load_model
from qbench.speed.rounds import Rounds, Samples
from qbench.speed.speed_worker import TimedModel
from qbench.versus.compare import compare, kv_bits, kv_type_of, measure_both, ratio
from qbench.versus.llama_cpp import LlamaCppProcess
from qbench.versus.llama_cpp_worker import leave_spinning_as_it_comes
from quant.errors import InputError
from quant.recipes import get_recipe


class RecordingSide:
    """Replaces a model, its cache and the other's process at once; notes (who, held, step, tokens)."""

    config = SimpleNamespace(max_positions=100, vocab_size=11)
    pid, vocab_size = os.getpid(), 11

    def __init__(self, log: list, name: str) -> None:
        self.log, self.name, self.seq_len = log, name, 0

    def new_cache(self, batch: int, capacity: int) -> "RecordingSide":
        return self

    def truncate(self, seq_len: int) -> None:
        self.seq_len = seq_len

    def mark(self) -> None:
        """`truncate` can go back to any length."""

    def __call__(self, tokens, cache, last_only: bool) -> None:
        self.log.append((self.name, self.seq_len, tokens[0].tolist()))
        self.seq_len += tokens.shape[1]

    def hold(self, tokens: list[list[int]], capacity: int) -> None:
        self.log.append((self.name, 0, tokens[0]))
        self.seq_len = len(tokens[0])

    def seconds(self, tokens: list[list[int]], step: int) -> float:
        for first in range(0, len(tokens[0]), step):
            self.log.append((self.name, self.seq_len + first, tokens[0][first : first + step]))
        return 1.0


def test_both_run_the_same_passes_and_take_turns_at_being_first():
    log = []
    ours, theirs = RecordingSide(log, "ours"), RecordingSide(log, "theirs")
    case = SpeedWork(pp=4, tg=2, depth=3, repetitions=2)
    _, measured = measure_both(TimedModel(ours), theirs, case, 1, None)
    passes = {name: [entry[1:] for entry in log if entry[0] == name] for name in ("ours", "theirs")}
    assert passes["ours"] == passes["theirs"] and len(passes["ours"]) == 1 + 3 * (1 + 2), "and a round of warm-up"
    assert passes["ours"][0] == (0, log[0][2]) and len(log[0][2]) == 3
    order = [entry[0] for entry in log if len(entry[2]) == 4]
    assert order == ["ours", "theirs", "theirs", "ours", "ours", "theirs"]
    assert all(len(getattr(measured, side).samples.tg_tok_s) == 2 for side in ("ours", "theirs"))


def test_ratio_is_of_times_in_pairs():
    sides = [Samples([9.0, *seconds]) for seconds in ([1.0, 2.0, 4.0], [2.0, 2.0, 2.0])]
    found = ratio(Rounds({"pp": sides}), "pp")
    low, high = found.interval
    assert (found.median, found.min, found.max, found.mad) == (1.0, 0.5, 2.0, 0.5) and low < 1 < high
    assert ratio(Rounds({"pp": sides}), "tg") is None


@pytest.mark.parametrize("bits, expected", [(32, "f32"), (16, "f16"), (8.25, "q8_0"), (8, "q8_0"), (4.5, "q4_0")])
def test_a_llama_cpp_type_with_the_same_number_of_bits_is_taken(bits, expected):
    config = SimpleNamespace(num_layers=2, num_kv_heads=3, head_dim=8)
    cache = SimpleNamespace(bytes_per_token=2 * 2 * 3 * 8 * bits / 8, latents=None)
    assert kv_type_of(SimpleNamespace(config=config, new_cache=lambda **_: cache)) == expected


@pytest.mark.parametrize("spec", ["ref:llama", "rand:tiny", "model.gguf"])
def test_only_files_can_be_compared(spec):
    with pytest.raises(InputError, match=r"needs a GGUF file.*qbench quantize"):
        compare(spec, [SpeedWork()])


@pytest.fixture
def gguf_file(tmp_path):
    return write_artifact(MemorySource(), tmp_path / "m.gguf", recipe=get_recipe("q8_0"))


def test_without_the_package_a_reason_is_given(gguf_file, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(InputError, match="llama-cpp-python is not installed"):
        compare(str(gguf_file), [SpeedWork(pp=4, tg=2)])


def test_a_process_that_dies_is_reported_with_its_last_words():
    command = (sys.executable, "-c", "import sys; sys.exit('no memory for tensors')")
    with pytest.raises(InputError, match="status 1: no memory for tensors"):
        LlamaCppProcess("m.gguf", 1, 16, "f16", command=command)


def test_a_process_that_dies_between_commands_is_reported_too():
    # It has ended before the next command is written, since the test waits for the end of its output.
    about = '{"result": {"version": "1", "system": "none"}}'
    code = f"import sys; input(); print({about!r}, flush=True); sys.exit('killed')"
    with LlamaCppProcess("m.gguf", 1, 16, "f16", command=(sys.executable, "-c", code)) as theirs:
        assert theirs._worker.wait(timeout=WAIT_S) == 1
        with pytest.raises(InputError, match="status 1: killed"):
            theirs.seconds([[1, 2]], 1)


def test_against_llama_cpp(gguf_file):
    skip_without_llama_cpp()
    cases = [SpeedWork(pp=8, tg=2, depth=depth, repetitions=2) for depth in (0, 5)]
    rows = compare(str(gguf_file), cases, RunOptions(threads=1))
    assert [row.depth for row in rows] == [0, 5]
    for row in rows:
        assert row.speeds.ours.pp_tok_s > 0 and row.speeds.theirs.tg_tok_s > 0 and row.speeds.ratio["pp"].median > 0
        assert len(row.roofline.bandwidth_bytes_per_s) == 3, "each round has its own"
        assert row.roofline.ours["tg"] is None, "a cache keeps all that a step reads"
        assert 0 < row.roofline.ours["pp"] and 0 < row.roofline.theirs["pp"]
        assert all(name.startswith("cpu-q8_0[") and "from" not in name for name in row.ran["tg"])


def test_llama_cpp_refuses_a_file_without_a_model(tmp_path):
    skip_without_llama_cpp()
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"llama\.cpp cannot load"):
        LlamaCppProcess(str(path), 1, 16, "f16")


@pytest.mark.parametrize(
    "given, left", [(qbench.SPIN_COUNT, None), ("77", "77"), (None, None)], ids=["ours", "theirs", "none"]
)
def test_llama_cpp_waits_as_it_does_elsewhere(monkeypatch, given, left):
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    if given:
        monkeypatch.setenv("GOMP_SPINCOUNT", given)
    leave_spinning_as_it_comes()
    assert os.environ.get("GOMP_SPINCOUNT") == left


@pytest.mark.parametrize("kv, bits", [(None, 32), ("kv-bf16", 16)])
def test_bits_of_a_latent_match_one_of_its_numbers(kv, bits):
    config = small_config("deepseek2") | ({} if kv is None else {"kv_cache": {"format": kv}})
    assert kv_bits(load_model(ArraySource(config, random_weights(config)))) == bits
