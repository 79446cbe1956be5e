from pathlib import Path

import pytest
from support.data import KERNEL_SUITES, REPO, written

from qbench.speed.speed_case import SpeedCase
from qbench.sweep.suite.load_suite import load_suite
from qbench.sweep.suite.suite import EvalSettings
from quant.errors import InputError

GOOD = "name: small\nmodels: [rand:tiny]\nrecipes: [bf16, q8_0]\n"


def load(folder: Path, text: str):
    return load_suite(written(folder / "suite.yaml", text))


def test_a_suite_in_full(tmp_path):
    suite = load(tmp_path, GOOD + "threads: 1\neval: {text: a.txt, max_windows: 3}\nbench: {pp: 8, tg: 4}\n")
    assert suite.models == ("rand:tiny",) and suite.recipes == ("bf16", "q8_0") and suite.threads == (1,)
    assert suite.eval == EvalSettings(text=str(tmp_path / "a.txt"), max_windows=3)
    assert suite.bench == SpeedCase(pp=8, tg=4)


def test_metadata_of_tasks(tmp_path):
    metadata = {"max_seq_lengths": [512, 1024], "tokenizer": "gpt2"}
    suite = load(tmp_path, GOOD + f"tasks: {{names: niah_single_1, metadata: {metadata}}}\n")
    assert suite.tasks is not None and suite.tasks.metadata == metadata


def test_suites_of_the_project_load():
    suites = [path for path in sorted((REPO / "suites").glob("*.yaml")) if path.stem not in KERNEL_SUITES]
    assert suites and all(load_suite(path).name == path.stem for path in suites)


def test_a_suite_of_kernels_is_none_of_models():
    with pytest.raises(
        InputError, match=r"a suite of kernels, without models; `qbench kernels --suite .*kernels.yaml`"
    ):
        load_suite(REPO / "suites" / "kernels.yaml")


@pytest.mark.parametrize(
    "text, told",
    [
        pytest.param(GOOD + "bench: {pp: 8}\nrecipe: [q8_0]", "unknown key 'recipe'.*did you mean 'recipes'", id="key"),
        pytest.param(GOOD + "bench: {tgg: 8}", "bench: unknown key 'tgg'; known: pp, tg, depth", id="inner key"),
        pytest.param(GOOD, "neither eval, tasks nor bench", id="nothing measured"),
        pytest.param(GOOD + "bench: {pp: many}", "pp is 'many', expected a whole number", id="type"),
        pytest.param(GOOD + "bench: {pp: true}", "pp is True, expected a whole number", id="no truth value"),
        pytest.param(GOOD + "bench: {pp: -1}", "pp is -1", id="negative"),
        pytest.param(GOOD + "eval: {max_windows: 0}", "max_windows is 0", id="no windows"),
        pytest.param(GOOD + "bench: {pp: 8}\nthreads: 0", "threads has 0", id="no threads"),
        pytest.param(GOOD + "bench: [8]", "got list, expected a mapping", id="section of another kind"),
        pytest.param("name: x\nmodels: []\nrecipes: [bf16]\nbench: {pp: 8}", "models is empty", id="empty axis"),
        pytest.param("name: x\nmodels: {a: 1}\nrecipes: [bf16]\nbench: {}", "expected a list of names", id="no list"),
        pytest.param("name: x\nmodels: [1]\nrecipes: [bf16]\nbench: {}", "expected a list of names", id="no names"),
        pytest.param(
            GOOD + "bench: {}\nthreads: [1, two]", "threads is .*expected a list of numbers or all", id="no number"
        ),
        pytest.param(GOOD + "bench: {}\nbatches: 0", "batches has 0, expected 1 or more", id="no batch"),
        pytest.param(GOOD + "bench: {}\ncontexts: []", "contexts is empty", id="empty list of numbers"),
        pytest.param(GOOD + "bench: {depth: 8}\ncontexts: 8", "contexts and bench's depth", id="depth twice"),
        pytest.param(GOOD + "eval: {}\nthreads: [1, 2]", "threads changes speed alone", id="threads without bench"),
        pytest.param(GOOD + "bench: {}\nschema: 3", "schema 3, this qbench knows 2", id="newer schema"),
        pytest.param(GOOD + "bench: {}\nkv_formats: kv-int9", "unknown KV format 'kv-int9'.*mean 'kv-int8'", id="KV"),
        pytest.param(GOOD + "bench: {}\nkv_formats: kv-fp8-cal", "needs scales from calibration", id="calibrated KV"),
        pytest.param(GOOD + "bench: {}\nkv_formats: dense-f32", "'dense-f32' is called 'f32' now", id="old f32"),
        pytest.param(GOOD + "bench: {}\ncaches: kv-int8", "the key is called 'kv_formats' now", id="old caches"),
        pytest.param(GOOD + "bench: {}\ncache_kinds: paged", "is called 'caches' and 'policies' now", id="old kinds"),
        pytest.param(GOOD + "bench: {}\ncaches: window:8", "is a policy now: window:8", id="policy as a cache"),
        pytest.param(
            GOOD + "bench: {}\ncalibration: {length: 64}",
            "calibration: key 'length' is called 'seq_len' now",
            id="length",
        ),
        pytest.param(GOOD + "bench: {}\nproducts: exact", "key 'products' is called 'compute' now", id="old products"),
        pytest.param(GOOD + "bench: {}\ncompute: auto", "compute 'auto' is called 'fast' now", id="old auto"),
        pytest.param(
            GOOD + "bench: {}\nexclude: [{cache: kv-int8}]", "the axis is called 'kv_format' now", id="old cache axis"
        ),
        pytest.param(
            GOOD + "bench: {}\nexclude: [{cache_kind: none}]", "is called 'cache' or 'policy' now", id="old kind axis"
        ),
        pytest.param(GOOD + "bench: {}\nisa: avx513", "unknown isa 'avx513'.*did you mean 'avx512'", id="isa"),
        pytest.param(
            GOOD + "eval: {}\npolicies: window:0",
            "policy 'window:0': expected window, or window:N",
            id="policy",
        ),
        pytest.param(GOOD + "eval: {}\nquestion: hidden", "question is an axis of tasks, which lack", id="no tasks"),
        pytest.param(GOOD + "tasks: {names: ref_recall}\nquestion: hiden", "unknown question 'hiden'", id="question"),
        pytest.param(GOOD + "eval: {}\nattention: [sdpa, eager]", "unknown attention 'eager'", id="attention"),
        pytest.param(GOOD + "eval: {}\ncompute: [exact, fp32]", "unknown compute 'fp32'; known: fast", id="compute"),
        pytest.param(GOOD + "bench: {}\ndevice: gpu", "unknown device 'gpu'; known: cpu, cuda", id="device"),
        pytest.param("name: x\nmodels: rand:tinny\nrecipes: bf16\nbench: {}", "did you mean 'tiny'", id="model"),
        pytest.param("name: x\nmodels: ref:lama\nrecipes: bf16\nbench: {}", "did you mean 'ref:llama'", id="ref model"),
        pytest.param(
            "name: x\nmodels: ref:llama\nrecipes: bf16+kv-fp8\nkv_formats: kv-int8\nbench: {}",
            "names the KV format kv-fp8 itself",
            id="cache in both",
        ),
        pytest.param(GOOD + "bench: {}\nexclude: {recipe: q8_0}", "expected a list of rules", id="no list of rules"),
        pytest.param(GOOD + "bench: {}\nexclude: [{receipt: q8_0}]", "unknown axis 'receipt'.*'recipe'", id="axis"),
        pytest.param(GOOD + "bench: {}\nexclude: [{bench: 1}]", "bench is 1, expected true", id="section of a rule"),
        pytest.param(GOOD + "tasks: {limit: 3}", "tasks: names missing", id="tasks without names"),
        pytest.param(
            GOOD + "tasks: {names: ref_recall, metadata: 3}", "metadata is 3, expected names with values", id="metadata"
        ),
        pytest.param(GOOD + "tasks: {names: ref_recall, limit: 0}", "limit of items a task is 0", id="no items"),
        pytest.param(GOOD + "eval: {protocols: [gptq-2047]}", "did you mean 'gptq-2048'", id="gptq of another size"),
        pytest.param(GOOD + "eval: {protocols: windows-N}", "unknown protocol 'windows-N'", id="no number"),
        pytest.param(GOOD + "eval: {protocols: llama.cpp-3}", "unknown protocol 'llama.cpp-3'", id="window of 3"),
        pytest.param(GOOD + "eval: {protocols: stride-007}", "unknown protocol 'stride-007'", id="number of zeros"),
        pytest.param(GOOD + "eval: {protocols: lama.cpp-512}", "did you mean 'llama.cpp-512'", id="protocol"),
        pytest.param(GOOD + "bench: {batch: 2}\nbatches: 4", "batches and bench's batch", id="batch twice"),
        pytest.param(GOOD + "bench: {}\nexclude: [q8_0]", "expected a mapping", id="rule that is a name"),
        pytest.param("name: x\nmodels: [a, a]\nrecipes: [bf16]\nbench: {pp: 8}", "names the same twice", id="twice"),
        pytest.param("models: [a]\nrecipes: [bf16]\nbench: {pp: 8}", "name missing", id="no name"),
        pytest.param("name: x\nmodels: [a]\nrecipes: [q9_0]\nbench: {pp: 8}", "q9_0", id="unknown recipe"),
        pytest.param("a: [", "not YAML", id="not YAML"),
        pytest.param(
            GOOD + "name: other\nbench: {pp: 8}", "key 'name' stands twice, again in line 4", id="a key twice"
        ),
        pytest.param("", "got NoneType", id="empty file"),
    ],
)
def test_bad_suites_are_refused_with_what_to_do(tmp_path, text, told):
    with pytest.raises(InputError, match=told):
        load(tmp_path, text)


def test_no_file(tmp_path):
    with pytest.raises(InputError, match=r"suite .*absent\.yaml: No such file"):
        load_suite(tmp_path / "absent.yaml")


def test_recipe_files_lie_beside_the_suite(tmp_path):
    (tmp_path / "mine.yaml").write_text("{base: q8_0}")
    suite = load(tmp_path, "name: x\nmodels: [rand:tiny]\nrecipes: [mine.yaml, q8_0]\nbench: {pp: 8}")
    assert suite.recipes == (str(tmp_path / "mine.yaml"), "q8_0")
