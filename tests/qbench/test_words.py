"""One word per concept: the words that DESIGN.md replaces are in no suite, option, record, column or name."""

import ast
import re
from dataclasses import fields as fields_of
from pathlib import Path

import click
import pytest
import yaml

from qbench.cli.main import COMMANDS, cli
from qbench.measure.metrics import Metrics
from qbench.plan.plan import CASE_KEYS as PLAN_KEYS
from qbench.run.axes import AXES, Setup
from qbench.run.case import Case
from qbench.run.options import RunOptions
from qbench.run.work import CalibrationWork, TasksWork
from qbench.store.columns import COLUMNS, KERNEL_COLUMNS, VERSUS_COLUMNS
from quant.json_data import HIDDEN, keys_of

ROOT = Path(__file__).parents[2]
# replaced word -> today's
OLD_KEYS = {
    "kv": "kv_format",
    "cache_kind": "cache, policy",
    "cache_kinds": "caches, policies",
    "products": "compute",
    "ceilings": "machine_peaks",
    "ceilings_seconds": "machine_peaks_seconds",
    "cache_bytes": "kv_bytes_held",
    "pass_tokens": "forward_tokens",
}
OLD_OPTIONS = ("--caches", "--products", "--cache-kind", "--plan", "--length")
OLD_VALUES = ("dense-f32", "auto")
OLD_NAMES = re.compile(
    r"cache_kinds|products?_option|check_products|[Cc]eilings?|CEILINGS?|Passes|longest_pass|of_one_pass|pass_flop|ragged\w*"
    r"|page_tokens|PAGE_TOKENS|TensorPlan|GONE|LatentPlan|latent_plans?|make_plans|plan_points|check_room|dense_f32"
)
# Modules that translate old files and command lines, or name a machine's pages as an operating system does.
MAY_SAY_OLD = {"qbench/measure/records/migrate.py", "qbench/cli/renamed.py", "qbench/run/renamed.py"}
# The runtime's kinds of caches; users name a layout and a policy.
MODULES_WITH_KINDS = {"cache_kinds"}


@pytest.mark.parametrize("path", sorted((ROOT / "suites").glob("*.yaml")), ids=lambda path: path.stem)
def test_suites_have_no_old_words(path):
    suite = yaml.safe_load(path.read_text())
    axes = {axis.key for axis in AXES}
    keys = {*suite, *(key for rule in suite.get("exclude", ()) for key in rule)}
    assert not keys & OLD_KEYS.keys()
    assert not any(value in OLD_VALUES for key in axes & suite.keys() for value in _listed(suite[key]))


def _listed(value) -> list:
    return value if isinstance(value, list) else [value]


@pytest.mark.parametrize("name", COMMANDS)
def test_options_have_no_old_words(name):
    command = cli.get_command(click.Context(cli), name)
    options = {option for one in command.params if isinstance(one, click.Option) for option in one.opts}
    assert not options & set(OLD_OPTIONS)


# Options of other programs (torchrun among them), of pytest's plugin, of gpu_kernels.measure and click's own,
# and one that a text explains as an earlier name.
OTHER_OPTIONS = {"--kl-divergence", "--qbench-baseline", "--choose", "--help", "--version", "--again"}
OTHER_OPTIONS |= {"--rdzv-backend", "--rdzv-conf"}
OTHER_OPTIONS |= {"--nproc-per-node", "--nnodes", "--node-rank", "--master-addr", "--master-port", "--rdzv-endpoint"}
OTHER_OPTIONS |= {"--no-build-isolation", "--editable", "--from", "--to", "--unshallow"}  # of others
OTHER_OPTIONS |= {"--steps", "--pictures", "--train-steps", "--write"}  # of qbench.displaced, and of a script
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
TEXTS = [*DOCS, *(ROOT / "results").glob("*/README.md"), *(ROOT / "suites").rglob("*.yaml")]


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_options_that_texts_name_exist(path):
    known = set(OTHER_OPTIONS)
    for name in COMMANDS:
        for one in cli.get_command(click.Context(cli), name).params:
            known |= {*one.opts, *one.secondary_opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", path.read_text(encoding="utf-8"))) <= known


def test_an_option_means_the_same_in_every_command():
    """--kv a KV format, --cache layouts, --policy policies or auto, --compute a precision."""
    kinds: dict[str, set[str]] = {}
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        for one in command.params:
            for option in set(one.opts) & {"--kv", "--cache", "--policy", "--compute"}:
                kinds.setdefault(option, set()).add(one.type.name.removesuffix(",...").removeprefix("auto|"))
    assert kinds == {"--kv": {"text"}, "--cache": {"cache"}, "--policy": {"policy"}, "--compute": {"choice"}}


@pytest.mark.parametrize("kind", [Case, Metrics, RunOptions], ids=lambda kind: kind.__name__)
def test_keys_of_records(kind):
    assert not keys_of(kind) & OLD_KEYS.keys()


@pytest.mark.parametrize(
    "columns", [COLUMNS, KERNEL_COLUMNS, VERSUS_COLUMNS, PLAN_KEYS], ids=["results", "kernels", "versus", "plan"]
)
def test_columns_have_no_old_words(columns):
    assert not set(columns) & OLD_KEYS.keys()


def test_axes_are_named_as_the_fields_of_a_case():
    kinds = (Case, TasksWork, CalibrationWork, RunOptions)
    fields = {name for kind in kinds for name in kind.__dataclass_fields__}
    assert {axis.name for axis in AXES} <= fields
    own = {field.name for field in fields_of(Setup)} - {*HIDDEN}
    assert own <= {axis.name for axis in AXES}, "each field of a setup has a row"


def names_of(path: Path) -> set[str]:
    """Every name that a module defines or uses, and its own."""
    found = {path.stem}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        found |= {
            getattr(node, field)
            for field in ("name", "id", "attr", "arg")
            if isinstance(getattr(node, field, None), str)
        }
    return found


@pytest.mark.parametrize("folder", ["qbench", "quant", "cpu_kernels", "gpu_kernels"])
def test_names_have_no_old_words(folder):
    old = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in (ROOT / folder).rglob("*.py")
        if str(path.relative_to(ROOT)) not in MAY_SAY_OLD
        for name in names_of(path) - MODULES_WITH_KINDS
        if OLD_NAMES.fullmatch(name)
    }
    assert old == set()


@pytest.mark.parametrize(
    "word", ["KV cache", "seq_len", "varlen", "cu_seqlens", "forward pass", "page_size", "max_seq_len"]
)
def test_the_fields_words_are_found_by_searching(word):
    assert any(word in path.read_text(encoding="utf-8") for path in (ROOT / "qbench" / "runtime").rglob("*.py"))
