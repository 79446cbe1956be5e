"""From a suite to its cases: the grid, the rules that strike points of it, and the measurements of each."""

from importlib import import_module

import pytest

from qbench.measure.host.machine import available_cores
from qbench.run.axes import AXIS
from qbench.run.work import CalibrationWork, QualityWork, SpeedWork, TasksWork
from qbench.sweeps.suite.cases import make_cases, select_points
from qbench.sweeps.suite.rules import Rule, parse_only
from qbench.sweeps.suite.suite import Suite
from qbench.sweeps.sweep import Selection, select
from quant.errors import InputError

BENCH = SpeedWork(pp=8, tg=4)


def suite(models=("ref:llama",), recipes=("bf16", "q8_0"), **settings) -> Suite:
    return Suite.of("test", tuple(models), tuple(recipes), **({"bench": BENCH, "eval": QualityWork()} | settings))


def rule(**axes) -> Rule:
    return Rule.of(axes, "exclude", sections=("eval", "bench"))


def made_cases(of: Suite, selected) -> list[dict]:
    """The cases as records keep them."""
    return [case.to_json() for case in make_cases(of, selected)]


def points(of: Suite, *names: str) -> list[tuple]:
    return [tuple(AXIS[name].value(one.point) for name in names) for one in select_points(of)]


def test_a_plain_suite_measures_everything_in_one_row_a_recipe():
    cases = made_cases(suite(), select_points(suite()))
    assert [(case["recipe"], case["threads"], case["batch"]) for case in cases] == [
        ("bf16", available_cores(), 1),
        ("q8_0", available_cores(), 1),
    ]
    assert cases[0]["eval"] == {"text": None, "max_windows": None} and cases[0]["kv_format"] == "f32"
    assert cases[0]["bench"] == {"pp": 8, "tg": 4, "depth": 0, "repetitions": 5} and cases[0]["context"] >= 8
    assert len(cases[0]["fingerprint"]) == 64 and "calibration" not in cases[0] and "recipe_sha256" not in cases[0]


def test_the_grid_turns_its_last_axes_fastest():
    grid = suite(threads=(1, 2), contexts=(0, 64), kv_formats=("f32", "kv-int8"))
    assert points(grid, "recipe", "kv_format", "threads", "context")[:5] == [
        ("bf16", "f32", 1, 0),
        ("bf16", "f32", 1, 64),
        ("bf16", "f32", 2, 0),
        ("bf16", "f32", 2, 64),
        ("bf16", "kv-int8", 1, 0),
    ]
    assert len(select_points(grid)) == 2 * 2 * 2 * 2
    deep = made_cases(grid, select_points(grid))[1]
    assert deep["bench"]["depth"] == 64 and deep["context"] >= 64 + 8


def test_quality_is_measured_once_for_all_threads_batches_and_depths():
    grid = suite(threads=(1, 2), batches=(1, 4), contexts=(0, 64), kv_formats=("f32", "kv-int8"))
    cases = made_cases(grid, select_points(grid))
    evaluated = [(case["recipe"], case["kv_format"]) for case in cases if case["eval"]]
    assert sorted(evaluated) == sorted({(case["recipe"], case["kv_format"]) for case in cases})
    assert all(case["bench"] for case in cases)


def test_another_instruction_set_may_round_otherwise_so_it_is_evaluated_too():
    grid = suite(recipes=["bf16"], isa=("auto", "scalar"))
    assert [bool(case["eval"]) for case in made_cases(grid, select_points(grid))] == [True, True]


@pytest.mark.parametrize(
    ("axis", "key", "values"),
    [("policies", "policy", ("full", "window:128")), ("compute", "compute", ("fast", "exact", "float32"))],
)
def test_an_axis_is_part_of_a_case_unless_it_has_the_usual_value(axis, key, values):
    """Rows from before the axis keep their keys; each value is evaluated once."""
    grid = suite(recipes=["bf16"], contexts=(0, 64), **{axis: values})
    cases = made_cases(grid, select_points(grid))
    expected = [(value, is_first) for value in (None, *values[1:]) for is_first in (True, False)]
    assert [(case.get(key), bool(case["eval"])) for case in cases] == expected
    assert cases[:2] == made_cases(suite(recipes=["bf16"], contexts=(0, 64)), select_points(grid)[:2])


def test_attention_is_part_of_a_case_if_it_was_chosen():
    grid = suite(recipes=["bf16"], attention=("textbook", "kernel"), contexts=(0, 64))
    cases = made_cases(grid, select_points(grid))
    found = [(case.get("attention"), bool(case["eval"])) for case in cases]
    assert found == [("textbook", True), ("textbook", False), ("kernel", True), ("kernel", False)]
    assert "attention" not in made_cases(suite(), select_points(suite()))[0]


def test_each_question_applies_only_to_tasks(monkeypatch):
    monkeypatch.setattr(import_module("qbench.sweeps.suite.cases"), "check_tasks", lambda tasks: None)
    tasks = TasksWork(("ref_questions_8k",))
    grid = suite(recipes=["bf16"], question=("visible", "hidden"), contexts=(0, 64), tasks=tasks)
    found = [
        (case.get("tasks", {}).get("question"), bool(case["eval"]), bool(case["bench"]))
        for case in made_cases(grid, select_points(grid))
    ]
    assert found == [("visible", True, True), (None, False, True), ("hidden", False, False)]
    (plain, *_) = made_cases(suite(tasks=tasks), select_points(suite(tasks=tasks)))
    assert "question" not in plain["tasks"]


def test_attention_that_a_policy_cannot_have_is_refused_with_the_rule_that_excludes_it():
    rule = r"exclude \{attention: sdpa, device: cpu, cache: dynamic, policy: \"tova:64\"\}"
    with pytest.raises(InputError, match=rule):
        select_points(suite(attention=("sdpa", "kernel"), policies=("full", "tova:64")))


def test_all_threads_match_the_machine_and_no_point_comes_twice():
    grid = suite(recipes=["bf16"], threads=tuple(dict.fromkeys((available_cores(), "all", 1))))
    assert points(grid, "threads") == [(count,) for count in dict.fromkeys((available_cores(), 1))]


def test_random_weights_have_no_quality():
    cases = made_cases(
        suite(["ref:llama", "rand:tiny"], ["bf16"]), select_points(suite(["ref:llama", "rand:tiny"], ["bf16"]))
    )
    assert [(case["model"], bool(case["eval"])) for case in cases] == [("ref:llama", True), ("rand:tiny", False)]
    with pytest.raises(InputError, match="random weights have no quality"):
        select_points(suite(["rand:tiny"], bench=None))


def test_rules_strike_points_or_their_measurements():
    struck = suite(kv_formats=("f32", "kv-int4"), exclude=(rule(recipe="q8*", kv_format="kv-int4"),))
    assert points(struck, "recipe", "kv_format") == [("bf16", "f32"), ("bf16", "kv-int4"), ("q8_0", "f32")]
    sections = suite(exclude=(rule(recipe="bf16", bench=True), rule(recipe=["q8_0", "q4_0"], eval=True)))
    assert [one.sections for one in select_points(sections)] == [("eval",), ("bench",)]


def test_quality_moves_to_the_first_point_that_is_left():
    grid = suite(recipes=["bf16"], threads=(1, 2), exclude=(rule(threads=1),))
    assert [(one.point.threads, one.sections) for one in select_points(grid)] == [(2, ("eval", "bench"))]


def test_rules_that_leave_nothing_or_strike_nothing_are_refused():
    with pytest.raises(InputError, match="nothing is left to measure: its rules exclude all"):
        select_points(suite(exclude=(rule(model="*"),)))
    with pytest.raises(InputError, match="exclude recipe=q4_0 matches no point"):
        select_points(suite(exclude=(rule(recipe="q4_0"),)))


def test_a_model_that_is_not_there():
    absent = suite(["ref_llama"])
    with pytest.raises(InputError, match="'ref_llama' is not there; did you mean 'ref:llama'"):
        made_cases(absent, select_points(absent))


@pytest.mark.parametrize(
    "axes, told",
    [
        ({"contexts": (0, 100_000)}, "need 1000.. tokens, the model's context holds"),
        ({"isa": ("amx9",)}, "isa amx9: this machine has auto, scalar"),
        ({"device": ("cuda",)}, "device cuda: "),
    ],
    ids=["context", "isa", "device"],
)
def test_points_that_cannot_run_here_are_refused_before_anything_is_measured(axes, told):
    with pytest.raises(InputError, match=told):
        made_cases(suite(**axes), select_points(suite(**axes)))


def test_texts_and_recipe_files_are_part_of_a_case(tmp_path):
    text, recipe = tmp_path / "a.txt", tmp_path / "mine.yaml"
    text.write_text("words")
    recipe.write_text("container: gguf\ndefault: q8_0\n")
    with_files = suite(
        recipes=[str(recipe)], eval=QualityWork(str(text)), calibration=CalibrationWork("generated", samples=4)
    )
    (case,) = made_cases(with_files, select_points(with_files))
    assert len(case["recipe_sha256"]) == len(case["eval"]["text_sha256"]) == 64
    assert case["calibration"] == {"text": "generated", "samples": 4, "length": None, "seed": 0}


def test_tasks_protocols_and_batches_are_part_of_a_case(monkeypatch):
    asked = []
    monkeypatch.setattr(import_module("qbench.sweeps.suite.cases"), "check_tasks", asked.append)
    tasks = TasksWork(("ref_recall",), limit=4)
    grid = suite(recipes=["bf16"], eval=QualityWork(protocols=("gptq-2048", "stride-64")), tasks=tasks, batches=(2, 4))
    first, second = made_cases(grid, select_points(grid))
    assert asked == [tasks]
    assert first["tasks"] == {"names": ["ref_recall"], "limit": 4}
    assert first["eval"]["protocols"] == ["gptq-2048", "stride-64"]
    assert (first["batch"], second["batch"]) == (2, 4) and "batch" not in first["bench"]
    assert second["eval"] is None and "tasks" not in second


def test_selection_by_axis():
    grid = suite(["ref:llama", "ref:llama-outliers"], ["bf16", "q8_0", "q4_0"])

    def chosen(*only: str) -> list[str]:
        picked = select(grid, Selection(only=tuple(map(parse_only, only))))
        return [f"{one.point.model} {one.point.recipe}" for one in picked]

    assert chosen("recipe=q4_0|q8_0,model=ref:llama") == ["ref:llama q8_0", "ref:llama q4_0"]
    assert chosen("model=*outliers,recipe=bf16", "recipe=q4_0") == [
        "ref:llama q4_0",
        "ref:llama-outliers bf16",
        "ref:llama-outliers q4_0",
    ]
    with pytest.raises(InputError, match="--only recipe=q2_k matches none of the 6 points"):
        chosen("recipe=q2_k")


@pytest.mark.parametrize("threads", (1, 2))
def test_quality_is_measured_at_the_first_point_that_is_selected(threads):
    grid = suite(recipes=["bf16"], threads=(2, 1))
    picked = select(grid, Selection(only=(parse_only(f"threads={threads}"),)))
    assert [(one.point.threads, one.sections) for one in picked] == [(threads, ("eval", "bench"))]


@pytest.mark.parametrize(
    "text, told",
    [
        ("recip=q8_0", "unknown axis 'recip'.*did you mean 'recipe'"),
        ("recipe", "'recipe' is not AXIS=VALUE"),
        ("recipe=", "is not AXIS=VALUE"),
        ("recipe=a,recipe=b", "recipe stands twice; write recipe=A|B"),
    ],
)
def test_selections_that_cannot_be_read(text, told):
    with pytest.raises(InputError, match=told):
        parse_only(text)


def test_a_shuffle_is_the_same_for_the_same_seed_and_loses_nothing():
    grid = suite(recipes=["bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1"])
    selected = select_points(grid)
    first, again, other = (select(grid, Selection(shuffle=seed)) for seed in (1, 1, 2))
    assert first == again != other and first != selected
    assert sorted(one.point.recipe for one in first) == sorted(one.point.recipe for one in selected)


def test_limits_apply_only_to_cases_of_speed():
    limited = suite(models=("ref:llama",), recipes=("q8_0",), memory=("none", "2GiB", "40%"))
    cases = made_cases(limited, select_points(limited))
    assert [case.get("memory") for case in cases] == [None, "2GiB", "40%"]
    assert ["eval" in case and case["eval"] is not None for case in cases] == [True, False, False]
    assert "memory" not in cases[0]  # keys of rows without a limit stay as they are


def test_each_seed_of_the_calibration_text_is_a_separate_case():
    of = suite(recipes=("gptq-w4g128",), seeds=(0, 7), calibration=CalibrationWork("generated", samples=4))
    cases = made_cases(of, select_points(of))
    assert [case["calibration"]["seed"] for case in cases] == [0, 7]
    assert all(case["eval"] and case["bench"] for case in cases), "another text gives other weights"
    (alone,) = made_cases(suite(recipes=("bf16",), seeds=(3,)), select_points(suite(recipes=("bf16",), seeds=(3,))))
    assert alone["calibration"]["seed"] == 3
    assert "calibration" not in made_cases(suite(), select_points(suite()))[0]


def test_memory_of_the_kv_cache_is_an_axis_of_bytes():
    of = suite(recipes=("bf16",), kv_ram=("all", "2MiB"))
    cases = made_cases(of, select_points(of))
    assert [case.get("kv_ram") for case in cases] == [None, 2 << 20]
    assert "kv_ram" not in cases[0], "rows of older code keep their keys"
    refused = suite(recipes=("bf16",), policies=("quest:budget=512",), kv_ram=("2MiB",))
    with pytest.raises(InputError, match=r"--kv-ram goes with .*exclude .*kv_ram: 2MiB"):
        select_points(refused)


def test_every_recipe_is_scored_on_each_text_and_timed_once(tmp_path):
    paths = []
    for name in ("tales", "letters"):
        paths.append(str(tmp_path / f"{name}.txt"))
        (tmp_path / f"{name}.txt").write_text(f"{name} " * 50, encoding="utf-8")
    grid = suite(texts=tuple(paths))
    cases = made_cases(grid, select_points(grid))
    assert [(case["recipe"], case["eval"]["text"], case["bench"] is not None) for case in cases] == [
        ("bf16", paths[0], True),
        ("bf16", paths[1], False),
        ("q8_0", paths[0], True),
        ("q8_0", paths[1], False),
    ]
    assert len({case["eval"]["text_sha256"] for case in cases}) == 2
    (only,) = select_points(suite(recipes=["q8_0"], texts=tuple(paths)), [parse_only(f"text={paths[1]}")])
    assert only.point.quality.text == paths[1]


def test_a_text_that_is_in_the_calibration_text_is_refused(tmp_path):
    lines = [
        f"{number}: a line of more than eighty characters, so that nobody else has written it before me\n"
        for number in range(100)
    ]
    seen, scored = tmp_path / "seen.txt", tmp_path / "scored.txt"
    seen.write_text("".join(lines[:60]), encoding="utf-8")
    work = CalibrationWork(text=str(seen))
    for first, refused in ((60, False), (58, True)):
        scored.write_text("".join(lines[first:]), encoding="utf-8")
        grid = suite(eval=QualityWork(text=str(scored)), calibration=work)
        if refused:
            with pytest.raises(InputError, match=r"scored.txt: 5% of its long lines are in the calibration text"):
                make_cases(grid, select_points(grid))
        else:
            assert make_cases(grid, select_points(grid))
