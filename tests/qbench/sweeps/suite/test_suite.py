from pathlib import Path

import pytest
from support.data import KERNEL_SUITES, REPO, written
from support.refused_rows import refused_rows

from qbench.run.work import QualityWork, SpeedWork
from qbench.sweeps.suite.load_suite import load_suite
from quant.errors import InputError

GOOD = "name: small\nmodels: [rand:tiny]\nrecipes: [bf16, q8_0]\n"


def load(folder: Path, text: str):
    return load_suite(written(folder / "suite.yaml", text))


def test_a_suite_in_full(tmp_path):
    suite = load(tmp_path, GOOD + "threads: 1\neval: {text: a.txt, max_windows: 3}\nbench: {pp: 8, tg: 4}\n")
    assert suite.axes == {"model": ("rand:tiny",), "recipe": ("bf16", "q8_0"), "threads": (1,)}
    assert suite.eval == QualityWork(text=str(tmp_path / "a.txt"), max_windows=3)
    assert suite.bench == SpeedWork(pp=8, tg=4)


def test_metadata_of_tasks(tmp_path):
    metadata = {"max_seq_lengths": [512, 1024], "tokenizer": "gpt2"}
    suite = load(tmp_path, GOOD + f"tasks: {{names: niah_single_1, metadata: {metadata}}}\n")
    assert suite.tasks is not None and suite.tasks.metadata == metadata


def test_suites_of_the_project_load():
    suites = [path for path in sorted((REPO / "suites").glob("*.yaml")) if path.stem not in KERNEL_SUITES]
    assert suites and all(load_suite(path).name == path.stem for path in suites)


def test_a_suite_of_kernels_is_not_a_suite_of_models():
    with pytest.raises(
        InputError, match=r"a suite of kernels, without models; `qbench kernels --suite .*kernels.yaml`"
    ):
        load_suite(REPO / "suites" / "kernels.yaml")


@pytest.mark.parametrize("text, told", refused_rows(__file__, "refused_suites.yaml"))
def test_bad_suites_are_refused_with_advice(tmp_path, text, told):
    with pytest.raises(InputError, match=told):
        load(tmp_path, GOOD + text[1:] if text.startswith("+") else text)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match=r"suite .*absent\.yaml: No such file"):
        load_suite(tmp_path / "absent.yaml")


def test_recipe_files_are_found_next_to_the_suite(tmp_path):
    (tmp_path / "mine.yaml").write_text("{base: q8_0}")
    suite = load(tmp_path, "name: x\nmodels: [rand:tiny]\nrecipes: [mine.yaml, q8_0]\nbench: {pp: 8}")
    assert suite.axes["recipe"] == (str(tmp_path / "mine.yaml"), "q8_0")


def test_models_of_the_command_replace_the_models_of_the_suite(tmp_path):
    path = tmp_path / "suite.yaml"
    path.write_text("name: x\nmodels: [ref:llama]\nrecipes: [bf16]\nbench: {}\n", encoding="utf-8")
    assert load_suite(path, ["rand:tiny", "rand:tiny"]).axes["model"] == ("rand:tiny",)
    with pytest.raises(InputError, match="unknown random model 'tinny'"):
        load_suite(path, ["rand:tinny"])
