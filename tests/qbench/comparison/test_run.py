"""From words to verdicts, on records of three models of known quality."""

import pytest
from support.paired_records import measured_record
from support.sample_records import write_records

from qbench.comparison.measured import Measuring
from qbench.comparison.run import compare
from qbench.measure.records.kinds import NOISE_FLOOR
from quant.errors import InputError

HERE = Measuring()


@pytest.fixture
def results(tmp_path):
    rows = [
        measured_record("bf16", kld=1e-4),
        measured_record("q8_0", loss=1e-5, seed=1),
        measured_record("q4_0", loss=0.004, kld=0.05, seed=2),
    ]
    return str(write_records(tmp_path / "a1b2c3.jsonl", rows))


def verdicts(comparison, *metrics):
    found = {cell.metric: cell.verdict for cell in comparison.cells}
    return [found[metric] for metric in metrics]


def test_a_table_against_its_baseline(results):
    q8_0, q4_0 = compare([results], HERE, baseline="bf16").comparisons
    assert [c.b.model_case.recipe for c in (q8_0, q4_0)] == ["q8_0", "q4_0"]
    assert verdicts(q4_0, "perplexity", "kld", "size_bytes") == ["worse", "worse", "better"]
    assert verdicts(q8_0, "perplexity") == ["same"]


def test_p_values_are_corrected_for_the_whole_table(results):
    table = compare([results], HERE, baseline="bf16").comparisons
    (alone,) = compare([f"{results}:recipe=bf16", ":recipe=q4_0"], HERE).comparisons
    tested = [cell for comparison in table for cell in comparison.cells if cell.holm_p_value is not None]
    smallest = min(tested, key=lambda cell: cell.estimate.p_value)
    assert len(tested) == 6 and smallest.holm_p_value == pytest.approx(6 * smallest.estimate.p_value)
    assert alone.cells[0].holm_p_value == pytest.approx(3 * alone.cells[0].estimate.p_value)


def test_one_file_against_another_pairs_equal_cases(results, tmp_path):
    later = [measured_record(recipe, loss=loss, seed=9) for recipe, loss in (("q4_0", 0.009), ("bf16", 0.0))]
    (tmp_path / "later").mkdir()
    other = write_records(tmp_path / "later" / "r.jsonl", [row | {"time": "2026-02-01T00:00:00"} for row in later])
    found = compare([results, str(other)], HERE)
    assert [c.b.model_case.recipe for c in found.comparisons] == ["q4_0", "bf16"]
    assert verdicts(found.comparisons[0], "perplexity", "size_bytes") == ["worse", "same"]


def test_two_commits_of_one_file(results, tmp_path):
    row = measured_record("q4_0", loss=0.009) | {"commit": "fedc" * 4, "time": "2026-02-01T00:00:00"}
    write_records(tmp_path / "later.jsonl", [row])
    (comparison,) = compare([f"{tmp_path}:commit=0123,recipe=q4_0", ":commit=fedc"], HERE).comparisons
    assert comparison.b.commit == "fedc" * 4 and verdicts(comparison, "perplexity") == ["worse"]


def test_a_row_without_a_partner_is_a_warning(results, tmp_path):
    row = measured_record("q6_k")
    write_records(tmp_path / "more.jsonl", [row | {"case": row["case"] | {"threads": 1}}])
    assert compare([str(tmp_path)], HERE, baseline="bf16").warning.endswith("like in A: ref:llama q6_k")


def test_a_floor_that_was_kept_is_used(results, tmp_path):
    floor = measured_record("bf16")
    floor["case"] = {"kind": NOISE_FLOOR, "fingerprint": floor["case"]["fingerprint"]}
    floor = floor | {"key": "floor", "metrics": floor["metrics"] | {"floor": {"perplexity": 0.5, "kld": 1e-6}}}
    with open(results, "a") as file:
        file.write(write_records(tmp_path / "floor", [floor]).read_text())
    (comparison,) = compare([f"{results}:recipe=bf16", ":recipe=q4_0"], HERE).comparisons
    assert verdicts(comparison, "perplexity", "kld") == ["same", "worse"]
    assert [cell.floor for cell in comparison.cells[:3]] == [0.5, 1e-6, None]


def test_rows_of_unlike_protocol_are_named(results, tmp_path):
    other = measured_record("q6_k")
    other["metrics"]["protocol"] = {"name": "windows-512", "hash": "beef"}
    write_records(tmp_path / "other.jsonl", [other])
    with pytest.raises(InputError, match=r"ref:llama bf16 and ref:llama q6_k: .*name \(windows-1024 and windows-512\)"):
        compare([f"{results}:recipe=bf16", f"{tmp_path / 'other.jsonl'}:recipe=q6_k"], HERE)


@pytest.mark.parametrize(
    "words, options, message",
    [
        (["{}"], {}, "compared with what"),
        (["{}", "ref:llama"], {}, "ref:llama is a model"),
        (["{}", ":recipe=q4_0"], {"baseline": "bf16"}, "a baseline is one of A's own rows"),
        (["{}"], {"baseline": "bf17"}, "did you mean 'bf16'"),
        (["{}"], {"baseline": "bf16", "noise_floor": True}, "measured already"),
        (["ref:llama"], {}, "--noise-floor for itself"),
        (["ref:llama"], {"baseline": "bf16"}, "no file or folder of records"),
        (["a", "b", "c"], {}, "3 things"),
    ],
)
def test_words_that_name_no_comparison(results, words, options, message):
    with pytest.raises(InputError, match=message):
        compare([word.format(results) for word in words], HERE, **options)


@pytest.mark.parametrize(
    "how", [{"tasks": "ref_sums", "windows": 2}, {"limit": 5}], ids=["a text and tasks", "a limit of nothing"]
)
def test_a_text_or_tasks(how):
    with pytest.raises(InputError, match="--tasks"):
        Measuring(**how)


def test_measured_rows_take_no_text(results):
    with pytest.raises(InputError, match="--text, --threads is for models"):
        compare([results], Measuring(text="x.txt", threads=1), baseline="bf16")
