import json
import sys
from types import ModuleType

import numpy as np
import pytest
from support.calibration import small_source

from qbench.calibration.windows import calibration_tokens, unused_tokens
from qbench.reference.corpus import EOS, HELDOUT_SEED, heldout_text
from qbench.run.work import CalibrationWork
from qbench.runtime.text.tokenizer import Tokenizer
from qbench.sources import open_source
from quant.errors import InputError

REF = open_source("ref:llama")
WORDS = "the cat sees the dog . " * 400

# A manifest's entry, in its order.
TEXT_KEYS = ("text", "asked_samples", "seed", "text_sha256", "samples", "length", "sha256")
OPTION_KEYS = ("on", "min_expert_tokens", "arithmetic")


def tokens_of(text: str, source=REF, **options) -> np.ndarray:
    return calibration_tokens(source, CalibrationWork(text=str(text), **options))


def test_windows_of_a_text_file(tmp_path):
    (tmp_path / "a.txt").write_text(WORDS)
    made = tokens_of(tmp_path / "a.txt", samples=5, seq_len=32)
    ids = np.array(Tokenizer(REF.tokenizer).encode(WORDS))
    whole = ids[: len(ids) // 32 * 32].reshape(-1, 32)
    assert made.tokens.shape == (5, 32) and all((row == whole).all(1).any() for row in made.tokens)
    described = made.describe(on="steps", min_expert_tokens=None, arithmetic="fp32")
    assert described.samples == 5 and described.seq_len == 32 and described.sha256 == made.sha256
    assert described.text == str(tmp_path / "a.txt") and len(described.text_sha256) == 64
    assert list(described.to_json()) == [*TEXT_KEYS, *OPTION_KEYS]


def test_the_seed_draws_the_windows(tmp_path):
    (tmp_path / "a.txt").write_text(" ".join(map(str, range(3000))))
    first, again, other = (tokens_of(tmp_path / "a.txt", samples=4, seq_len=16, seed=seed) for seed in (1, 1, 2))
    assert first.sha256 == again.sha256 != other.sha256


def test_unused_tokens_are_in_no_window(tmp_path):
    """A file has windows that were not drawn; a seed's documents go on after those that were."""
    np.save(tmp_path / "a.npy", np.arange(10_000))  # windows are drawn from 9600, and 400 tokens follow
    options = CalibrationWork(text=str(tmp_path / "a.npy"), samples=2, seq_len=300)
    drawn = set(calibration_tokens(REF, options).tokens.ravel().tolist())
    unused = unused_tokens(REF, options, 1000)
    assert len(unused) == len(set(unused.tolist())) == 1000 and not drawn & set(unused.tolist())
    assert set(range(9600, 10_000)) < set(unused.tolist())
    assert len(unused_tokens(REF, options, 10**6)) == 10_000 - 600
    made = CalibrationWork(text="generated", samples=2, seq_len=100)
    both = CalibrationWork(text="generated", samples=3, seq_len=100)
    assert np.array_equal(unused_tokens(REF, made, 100), calibration_tokens(REF, both).tokens[2])


def test_a_short_text_gives_fewer_windows_and_a_note(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(100))
    made = tokens_of(tmp_path / "a.npy", samples=64, seq_len=30)
    assert len(made.tokens) == 3 and made.asked_samples == 64
    assert np.array_equal(made.tokens, np.arange(90).reshape(3, 30))


def test_the_same_ids_by_every_way(tmp_path):
    ids = np.arange(60).reshape(3, 20)
    np.save(tmp_path / "a.npy", ids.astype(np.int32))
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ids.tolist()))
    (tmp_path / "c.jsonl").write_text("".join(json.dumps({"tokens": row}) + "\n\n" for row in ids.tolist()))
    for name in ("a.npy", "b.jsonl", "c.jsonl"):
        assert np.array_equal(tokens_of(tmp_path / name, seq_len=20).tokens, ids), name


def test_documents_of_json_lines_follow_each_other(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": WORDS}) + "\n" + json.dumps({"text": "a bird"}) + "\n")
    tokenizer = Tokenizer(REF.tokenizer)
    ids = [*tokenizer.encode(WORDS), *tokenizer.encode("a bird")]
    made = tokens_of(tmp_path / "a.jsonl", seq_len=len(ids))
    assert made.tokens.tolist() == [ids]


def test_generated_text_is_the_default_of_a_reference_model_and_never_held_out():
    made = calibration_tokens(REF, CalibrationWork(samples=32, seq_len=512, seed=HELDOUT_SEED))
    assert made.text == "generated"
    text = Tokenizer(REF.tokenizer).decode(made.tokens.reshape(-1).tolist(), skip_special=False)
    heldout = set(heldout_text(num_chars=400_000).split(EOS))
    generated = text.split(EOS)[1:-1]
    assert len(generated) > 5 and not heldout & set(generated)
    assert heldout & set(heldout_text(num_chars=2000).split(EOS)), "a held-out document would be found"


def test_a_random_model_gets_random_ids():
    made = calibration_tokens(open_source("rand:tiny"), CalibrationWork(samples=3, seq_len=100))
    assert made.text == "random" and 0 <= made.tokens.min() and made.tokens.max() < 512


def test_a_dataset_of_the_hub(monkeypatch, tmp_path):
    """Through the package if it is installed, else through a stand-in of its one function."""
    (tmp_path / "data").mkdir()
    rows = [{"text": WORDS}, {"text": "a bird"}]
    (tmp_path / "data" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    try:
        import datasets  # noqa: F401
    except ImportError:
        package = ModuleType("datasets")
        package.load_dataset = lambda name, split, streaming: rows
        monkeypatch.setitem(sys.modules, "datasets", package)
    ids = Tokenizer(REF.tokenizer).encode(WORDS)
    made = tokens_of(f"hf:{tmp_path / 'data'}", seq_len=16, samples=10_000)
    assert np.array_equal(made.tokens.reshape(-1)[: len(ids) // 16 * 16], ids[: len(ids) // 16 * 16])


def write(path, content):
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)


@pytest.mark.parametrize(
    "name, content, words",
    [
        pytest.param("a.txt", b"too short", "tokens, shorter than one window of 512", id="short"),
        pytest.param("a.txt", b"", r"has [01] tokens, shorter than one window", id="empty"),
        pytest.param("a.txt", "café".encode("latin-1"), "not UTF-8 at byte 3", id="encoding"),
        pytest.param("a.jsonl", b'{"text": "x"}\nnope\n', "line 2 is not JSON", id="no JSON"),
        pytest.param("a.jsonl", b'{"body": "x"}\n', 'line 1 has neither "text" nor "tokens"', id="no text"),
        pytest.param("a.jsonl", b'{"text": "x"}\n[1]\n', "some lines have text and some token ids", id="both"),
        pytest.param("a.npy", np.zeros(9), "token ids must be whole numbers, got float64", id="floats"),
        pytest.param("a.npy", b"junk", "cannot read the token ids", id="no array"),
        pytest.param("b.txt", b"", "cannot read the calibration text: No such file", id="absent"),
    ],
)
def test_texts_that_cannot_be_used(tmp_path, name, content, words):
    if name != "b.txt":
        write(tmp_path / name, content)
    with pytest.raises(InputError, match=words):
        tokens_of(tmp_path / name)


def test_models_that_need_another_text(tmp_path):
    (tmp_path / "a.txt").write_text(WORDS)
    with pytest.raises(InputError, match="has no tokenizer; calibrate on token ids"):
        tokens_of(tmp_path / "a.txt", small_source())
    with pytest.raises(InputError, match="no text is known for this model; give `qbench quantize` --calibration FILE"):
        calibration_tokens(small_source(), CalibrationWork())


@pytest.mark.parametrize("option", [{"samples": 0}, {"seq_len": 1}, {"on": "both"}, {"min_expert_tokens": 0}])
def test_impossible_options_are_refused(option):
    with pytest.raises(InputError, match=next(iter(option))):
        CalibrationWork(**option)
