"""The names in a suite, checked against the registries: models, recipes, KV formats, instruction sets, devices."""

import os
from typing import TYPE_CHECKING

from qbench.reference import MODELS, weights_dir
from qbench.run.axes import check_known
from qbench.run.case import Case
from qbench.run.choices import AUTO_ISA, check_device
from qbench.sources import open_source
from qbench.sources.open import OPENERS
from qbench.sources.rand import PREFIX as RAND
from qbench.sources.reference import PREFIX as REF
from qbench.sources.shapes import SHAPES
from qbench.sweeps.suite.grid import own_kv_format
from qbench.tasks.catalogue import load_tasks
from qbench.tasks.quiet import quiet
from qbench.words.written import nearest
from quant.errors import InputError
from quant.kv_names import FLOAT32

if TYPE_CHECKING:
    from qbench.run.work import TasksWork
    from quant.source import Source


def check_model(model: str) -> None:
    """A name is looked up; a path or hf: is checked when it is opened."""
    if model.startswith(REF):
        weights_dir(model.removeprefix(REF))
    elif model.startswith(RAND):
        check_known("random model", model.removeprefix(RAND), tuple(SHAPES))


def check_recipe(recipe: str, kv_formats: tuple[str, ...] | None) -> None:
    own = own_kv_format(recipe)
    if kv_formats and own != FLOAT32:
        raise InputError(f"recipe {recipe} names the KV format {own} itself; say so there or in kv_formats, not both")


def check_tasks(tasks: "TasksWork") -> None:
    """Tasks are lm-eval's to know, and to have the data of: it is asked before anything runs."""
    with quiet():
        load_tasks(tasks)


def check_here(point: Case) -> None:
    """raises InputError for an instruction set or a device that this machine lacks"""
    import cpu_kernels

    here = (AUTO_ISA, *cpu_kernels.features())
    if point.isa not in here:
        raise InputError(f"isa {point.isa}: this machine has {', '.join(here)}; leave it out with --only isa=...")
    check_device(point.device, point.compute)


def open_model(model: str) -> "Source":
    """raises InputError for one that is not there, with the nearest name"""
    if not model.startswith(tuple(OPENERS)) and not os.path.exists(os.path.expanduser(model)):
        names = [*(f"ref:{name}" for name in MODELS), *(f"rand:{name}" for name in SHAPES)]
        raise InputError(f"model {model!r} is not there{nearest(model, names)}; a path starts where the command does")
    return open_source(model)
