"""The points of a suite's grid."""

import os
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product

from qbench.measure.case import Case
from qbench.measure.host.machine import own_cores
from qbench.options.cache_spec import DENSE as DENSE_PREFILL
from qbench.options.cache_spec import DYNAMIC, FULL
from qbench.options.choices import CPU, FAST
from qbench.options.rank_layout import RankLayout
from qbench.options.run_options import RunOptions
from qbench.sweeps.suite.axes import ALL, AXES, DENSE, Point
from qbench.sweeps.suite.suite import Suite
from quant.present import present
from quant.recipes import get_recipe


def grid(suite: Suite) -> Iterator[Point]:
    """Every combination of the suite's values; axes that it does not give have one value."""
    own = defaults(suite)
    given = {axis.name: getattr(suite, axis.key) or own[axis.name] for axis in AXES}
    # On a machine of one core, 1 and all of them are one point.
    given["threads"] = tuple(dict.fromkeys(own_cores() if one == ALL else one for one in given["threads"]))
    for values in product(*given.values()):
        point = dict(zip(given, values, strict=True))
        point["kv_format"] = point["kv_format"] or own_kv_format(point["recipe"])
        yield Point(**point)


def defaults(suite: Suite) -> dict[str, tuple]:
    """Field of a point -> the one value of an axis that the suite does not give."""
    return {
        "kv_format": (None,),  # as the recipe says
        "cache": (DYNAMIC,),
        "policy": (FULL,),
        "prefill_chunk": (None,),
        "attention": (None,),
        "prefill": (DENSE_PREFILL,),
        "kv_ram": (ALL,),
        "question": (None,),
        "compute": (FAST,),
        "isa": (os.environ.get("QBENCH_ISA") or "auto",),
        "device": (CPU,),
        "division": (None,),
        "memory": (None,),
        "threads": (ALL,),
        "batch": (suite.bench.batch if suite.bench else 1,),
        "context": (suite.bench.depth if suite.bench else None,),
        "model": (),
        "recipe": (),
    }


def own_kv_format(recipe: str) -> str:
    """The KV format of the recipe itself."""
    return get_recipe(recipe).kv or DENSE


def run_options(case: Case) -> RunOptions:
    """How the model of a suite's case runs, without its memory limit. raises InputError for options of one rank"""
    return RunOptions(
        kv_format=chosen_kv_format(case),
        cache=case.cache,
        policy=case.policy,
        prefill_chunk=case.prefill_chunk,
        attention=case.attention,
        prefill=case.prefill,
        kv_ram=case.kv_ram,
        compute=case.compute,
        device=case.device,
        threads=case.threads,
        **{} if case.division is None else asdict(RankLayout.of(case.division)),
    )


def chosen_kv_format(case: Case) -> str | None:
    """The KV format of a suite's case; None if it is the recipe's own."""
    return None if case.kv_format == own_kv_format(present(case.recipe)) else case.kv_format
