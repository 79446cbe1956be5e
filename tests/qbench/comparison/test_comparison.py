import pytest
from support.paired_records import measured_record as measured
from support.row_comparison import compare_rows

from qbench.comparison.text import change
from qbench.statistics.paired import require_same_protocol
from quant.errors import InputError

PROTOCOL = "f00d"  # hash of that of measured_record


def by_metric(comparison):
    return {cell.metric: cell for cell in comparison.cells}


def test_a_worse_recipe_is_worse_in_quality_and_better_in_size():
    cells = by_metric(compare_rows(measured("bf16", kld=1e-4), measured("q4_0", loss=0.004, seed=1)))
    assert {name: cell.verdict for name, cell in cells.items()} == {
        "perplexity": "worse",
        "kld": "worse",
        "same_top": "worse",
        "tg_tok_s": None,
        "size_bytes": "better",
    }
    assert cells["perplexity"].estimate.low > 1 and cells["size_bytes"].holm_p_value is None


def test_the_same_row_is_the_same_everywhere():
    row = measured("q8_0")
    comparison = compare_rows(row, row)
    assert {cell.verdict for cell in comparison.cells if cell.is_tested} == {"same"}
    assert all(cell.estimate.p_value == 1 for cell in comparison.cells if not cell.exact)


def test_floor_makes_a_sure_difference_the_same():
    a, b = measured("bf16"), measured("q8_0", loss=0.004, seed=1)
    assert by_metric(compare_rows(a, b))["perplexity"].verdict == "worse"
    cell = by_metric(compare_rows(a, b, {PROTOCOL: {"perplexity": 0.01}}))["perplexity"]
    assert (cell.verdict, cell.floor) == ("same", 0.01)


def test_the_floor_of_another_protocol_is_not_used():
    a, b = measured("bf16"), measured("q8_0", loss=0.004, seed=1)
    cell = by_metric(compare_rows(a, b, {"beef": {"perplexity": 0.01}}))["perplexity"]
    assert (cell.verdict, cell.floor) == ("worse", None)


@pytest.mark.parametrize("num_blocks", [1, 2])
def test_too_few_blocks_for_a_verdict_are_reported(num_blocks):
    def short(recipe: str, loss: float):
        sums = {"nll": [200.0 + loss] * num_blocks, "kld": [loss] * num_blocks, "same_top": [90.0] * num_blocks}
        return measured(recipe, blocks={"unit": "window", "tokens": [100] * num_blocks, **sums})

    cells = by_metric(compare_rows(short("bf16", 0.0), short("q8_0", 1.0)))
    for metric in ("perplexity", "kld"):
        assert cells[metric].verdict is None and cells[metric].num_blocks == num_blocks
        assert cells[metric].note.startswith(
            f"no interval from {num_blocks} window{'s' * (num_blocks > 1)}, so no verdict: it takes"
        )


def test_rows_without_blocks_are_reported_and_not_judged():
    old = measured("q8_0", blocks=None)
    cell = by_metric(compare_rows(measured("bf16"), old))["perplexity"]
    assert cell.verdict is None and cell.estimate.low is None
    assert cell.note.startswith("no interval, for want of the sums by block that B lacks")


def test_unlike_protocols_are_refused_with_their_difference():
    a, b = measured("bf16"), measured("q4_0")
    a["metrics"]["protocol"] = {"name": "windows-1024", "num_windows": 24, "hash": "a"}
    b["metrics"]["protocol"] = {"name": "windows-1024", "num_windows": 12, "hash": "b"}
    with pytest.raises(InputError, match=r"num_windows \(24 and 12\)"):
        compare_rows(a, b)
    require_same_protocol(a["metrics"]["protocol"], a["metrics"]["protocol"])


def test_only_common_conventions_are_compared():
    def with_conventions(*names):
        row = measured("q8_0")["metrics"]
        return {name: row | {"protocol": {"name": name, "hash": name}} for name in names}

    a = measured("bf16", protocols=with_conventions("gptq-2048", "llama.cpp-512"))
    b = measured("q8_0", protocols=with_conventions("llama.cpp-512", "lm-eval-word"))
    assert "perplexity" in by_metric(compare_rows(a, b))


def test_each_common_convention_has_its_own_cells():
    conventions = "gptq-2048", "stride-64"

    def both(row):
        return {name: row["metrics"] | {"protocol": {"name": name, "hash": name}} for name in conventions}

    a, b = measured("bf16"), measured("q4_0", loss=0.004, seed=1)
    cells = by_metric(compare_rows(*(row | {"metrics": {"protocols": both(row)}} for row in (a, b))))
    names = [f"{metric} ({name})" for name in conventions for metric in ("perplexity", "kld", "same_top")]
    assert list(cells) == names and {cells[name].verdict for name in names[::3]} == {"worse"}


def test_a_side_without_divergence_is_reported():
    without = measured("q8_0")
    without["metrics"]["kld"] = None
    comparison = compare_rows(measured("bf16"), without)
    assert comparison.left_out == ["kld: B has none (no reference, or logits that are not finite)"]


def test_divergences_from_unlike_references_are_left_out():
    comparison = compare_rows(measured("bf16"), measured("q8_0", reference="ref:other"))
    assert "kld" not in by_metric(comparison)
    assert comparison.left_out == ["kld: measured from unlike references (ref:llama and ref:other)"]


def test_speeds_of_unlike_machines_are_left_out():
    other = measured("q8_0") | {"machine": {"id": "ffff", "cpu": "Other", "cores": 2}}
    comparison = compare_rows(measured("bf16"), other)
    assert "tg_tok_s" not in by_metric(comparison)
    assert comparison.left_out == ["speed: measured on unlike machines (a1b2c3 and ffff)"]


def test_speeds_of_unlike_processors_are_left_out_and_quality_is_kept():
    """Zen 4 and Zen 5 have one name and the same flags, so one id."""

    def on(recipe: str, processor: str | None) -> dict:
        row = measured(recipe)
        return row | {"machine": row["machine"] | {"processor": processor}}

    comparison = compare_rows(on("bf16", "family 25, model 17"), on("q8_0", "family 26, model 2"))
    assert comparison.left_out == ["speed: measured on unlike processors (family 25, model 17 and family 26, model 2)"]
    assert "tg_tok_s" not in by_metric(comparison) and "kld" in by_metric(comparison)
    assert "tg_tok_s" in by_metric(compare_rows(on("bf16", None), on("q8_0", "family 26, model 2")))


def test_speeds_of_one_process_each_have_no_verdict_and_a_reason():
    cell = by_metric(compare_rows(measured("bf16"), measured("q8_0", seed=2)))["tg_tok_s"]
    assert "measured in one process each" in cell.note and "sweep --launches" in cell.note
    assert cell.verdict is None and cell.holm_p_value is None and "[n/a]" in change(cell)


def test_p_values_are_corrected_for_the_whole_table():
    cells = compare_rows(measured("bf16"), measured("q8_0", loss=0.002, seed=1)).cells
    tested = [cell for cell in cells if cell.holm_p_value is not None]
    assert len(tested) == 3
    smallest = min(tested, key=lambda cell: cell.estimate.p_value)
    assert smallest.holm_p_value == pytest.approx(3 * smallest.estimate.p_value)
