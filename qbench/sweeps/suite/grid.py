"""The points of a suite's grid."""

import os
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from typing import Any

from qbench.measure.host.machine import own_cores
from qbench.run.axes import ALL, AXIS, SUITE_AXES, Setup
from qbench.run.case import Case
from qbench.run.choices import AUTO_ISA
from qbench.run.options import RunOptions
from qbench.run.work import CalibrationWork
from qbench.sweeps.suite.suite import Suite
from quant.json_data import HIDDEN
from quant.kv_names import FLOAT32
from quant.present import present
from quant.recipes import get_recipe


def grid(suite: Suite) -> Iterator[Case]:
    """Every combination of the suite's values, with all that the suite measures; other axes have their usual value."""
    given: dict[str, tuple[Any, ...]] = {
        "isa": (os.environ.get("QBENCH_ISA") or AUTO_ISA,),
        "threads": (ALL,),
        **suite.axes,
    }
    # On a machine of one core, 1 and all of them are one point.
    given["threads"] = tuple(dict.fromkeys(own_cores() if one == ALL else one for one in given["threads"]))
    axes = [axis for axis in SUITE_AXES if axis.name in given]
    for values in product(*(given[axis.name] for axis in axes)):
        yield _case(suite, {axis.name: axis.parsed(value) for axis, value in zip(axes, values, strict=True)})


def _case(suite: Suite, values: dict[str, Any]) -> Case:
    """The case at one point, before the model is opened."""
    works = {"quality": suite.eval, "tasks": suite.tasks, "speed": suite.bench, "calibration": suite.calibration}
    if suite.bench is not None:
        values.setdefault("batch", suite.bench.batch)
        works["speed"] = replace(suite.bench, batch=1)
    if suite.calibration is None and any(AXIS[name].part == "calibration" for name in values):
        works["calibration"] = CalibrationWork()
    for name in [name for name in values if AXIS[name].part]:
        axis = AXIS[name]
        works[axis.part] = replace(present(works[axis.part]), **{axis.field: values.pop(name)})
    values.setdefault("kv_format", own_kv_format(values["recipe"]))
    return Case(**values, **works)


def own_kv_format(recipe: str) -> str:
    """The KV format of the recipe itself."""
    return get_recipe(recipe).kv or FLOAT32


def run_options(case: Case) -> RunOptions:
    """How the model of a suite's case runs, without its memory limit. raises InputError for options of one rank"""
    setup = {one.name: getattr(case, one.name) for one in fields(Setup) if one.name not in HIDDEN}
    return RunOptions(**setup | {"recipe": None, "kv_format": chosen_kv_format(case)})


def chosen_kv_format(case: Case) -> str | None:
    """The KV format of a suite's case; None if it is the recipe's own."""
    return None if case.kv_format == own_kv_format(present(case.recipe)) else case.kv_format
