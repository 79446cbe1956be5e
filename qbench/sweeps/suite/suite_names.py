"""The names in a suite, checked against the registries: models, recipes, KV formats, instruction sets, devices."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from qbench.options.choices import check_device
from qbench.reference import MODELS, weights_dir
from qbench.sources import open_source
from qbench.sources.open import OPENERS
from qbench.sources.rand import PREFIX as RAND
from qbench.sources.reference import PREFIX as REF
from qbench.sources.shapes import SHAPES
from qbench.sweeps.suite.axes import DENSE, Point
from qbench.sweeps.suite.grid import own_kv_format
from qbench.tasks.catalogue import load_tasks
from qbench.tasks.quiet import quiet
from qbench.words.written import nearest
from quant.errors import InputError
from quant.kv import KV_FORMATS

if TYPE_CHECKING:
    from qbench.tasks.settings import TaskSettings
    from quant.source import Source

ISAS = ("scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "amx")  # values of QBENCH_ISA
AUTO = "auto"  # the best instruction set that the machine has


def check_known(what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        raise InputError(f"unknown {what} {name!r}; known: {', '.join(known)}{nearest(name, known)}")


def check_model(model: str) -> None:
    """A name is looked up; a path or hf: is checked when it is opened."""
    if model.startswith(REF):
        weights_dir(model.removeprefix(REF))
    elif model.startswith(RAND):
        check_known("random model", model.removeprefix(RAND), tuple(SHAPES))


def check_recipe(recipe: str, kv_formats: tuple[str, ...] | None) -> None:
    own = own_kv_format(recipe)
    if kv_formats and own != DENSE:
        raise InputError(f"recipe {recipe} names the KV format {own} itself; say so there or in kv_formats, not both")


def check_kv_format(name: str) -> None:
    if name == DENSE:
        return
    if name == "dense-f32":
        raise InputError(f"KV format {name!r} is called {DENSE!r} now")
    check_known("KV format", name, (DENSE, *KV_FORMATS))
    if KV_FORMATS[name].calibrated:
        raise InputError(f"KV format {name} needs scales from calibration; give it with a recipe, as in q8_0+{name}")


def check_tasks(tasks: "TaskSettings") -> None:
    """Tasks are lm-eval's to know, and to have the data of: it is asked before anything runs."""
    with quiet():
        load_tasks(tasks)


def check_here(point: Point) -> None:
    """raises InputError for an instruction set or a device that this machine lacks"""
    import cpu_kernels

    here = (AUTO, *cpu_kernels.features())
    if point.isa not in here:
        raise InputError(f"isa {point.isa}: this machine has {', '.join(here)}; leave it out with --only isa=...")
    check_device(point.device, point.compute)


def open_model(model: str) -> "Source":
    """raises InputError for one that is not there, with the nearest name"""
    if not model.startswith(tuple(OPENERS)) and not os.path.exists(os.path.expanduser(model)):
        names = [*(f"ref:{name}" for name in MODELS), *(f"rand:{name}" for name in SHAPES)]
        raise InputError(f"model {model!r} is not there{nearest(model, names)}; a path starts where the command does")
    return open_source(model)
