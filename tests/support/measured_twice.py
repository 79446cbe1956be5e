"""Sample records of a sweep that measured its speeds in two launches."""

import numpy as np
from support.sample_records import SWEEP, make_record

RECIPES = tuple(SWEEP)[:4]
SAMPLES = np.linspace(0.999, 1.001, 9)


def measured(recipe: str, factor: float = 1.0) -> dict:
    speeds = {name: factor * value for name, value in (("pp_tok_s", 5000.0), ("tg_tok_s", 400.0))}
    return make_record(recipe, **speeds, samples={name: (value * SAMPLES).tolist() for name, value in speeds.items()})


def second(first: dict, factor: float, **more) -> dict:
    row = measured(first["case"]["recipe"], factor)
    case = {**first["case"], "kind": "again", "of": first["key"], "eval": None}
    return row | {"case": case, "key": f"again-{first['key']}"} | more


def twice(factors, **more) -> list[dict]:
    firsts = [measured(recipe) for recipe in RECIPES]
    return [*firsts, *(second(first, factor, **more) for first, factor in zip(firsts, factors, strict=False))]
