"""The named recipes, one row each, and those that differ from a row only in bits and group size."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from quant.formats import IntGroupFormat, get_format
from quant.formats.grid import GridFormat
from quant.recipes.containers import GROUP_SIZES
from quant.recipes.mixes import LABELS, OWN_ROWS, mix
from quant.recipes.policies import Linears, Uniform
from quant.recipes.recipe import Recipe

MIXES = (*LABELS, *(label for label, _, _ in OWN_ROWS))
# llama-quantize makes no Q2_K_S without an importance matrix.
MIX_ROWS = tuple((label.lower(), "gguf", "rtn", mix(label)) for label in MIXES if label != "Q2_K_S")
# Q8_0 uses no importance.
IMATRIX_ROWS = tuple(
    (f"imatrix-{label.lower()}", "gguf", "imatrix", mix(label, calibrated=True)) for label in MIXES if label != "Q8_0"
)
# Error feedback needs evenly spaced levels; at 8 bits there is little to feed back.
GPTQ_ROWS = tuple(
    (f"gptq-{label.lower()}", "gguf", "gptq", mix(label, calibrated=True))
    for label in MIXES
    if isinstance(get_format(mix(label).default), GridFormat) and label != "Q8_0"
)

FP4 = ("nvfp4a16", "mxfp4a16")

# name, container, method, policy, and if not the default: options, packing
ROWS = (
    ("bf16", "hf", "rtn", Uniform("bf16")),
    ("rtn-w8", "hf", "rtn", Linears("w8")),
    ("rtn-w4g128", "hf", "rtn", Linears("w4g128")),
    ("rtn-w3g128", "hf", "rtn", Linears("w3g128")),
    ("rtn-w8a8", "hf", "rtn", Linears("w8a8")),
    ("rtn-w4a4", "hf", "rtn", Linears("w4a4")),
    ("rtn-w8a8-tensor", "hf", "rtn", Linears("w8a8-wtensor-atensor")),
    ("smoothquant-w4a4", "hf", "smoothquant", Linears("w4a4")),
    ("smoothquant-w8a8", "hf", "smoothquant", Linears("w8a8")),
    ("smoothquant-w8a8-o2", "hf", "smoothquant", Linears("w8a8-atensor")),
    ("smoothquant-w8a8-o3", "hf", "smoothquant", Linears("w8a8-astatic")),
    ("smoothquant-w8a8-auto", "hf", "smoothquant", Linears("w8a8"), {"alpha": "auto"}),
    *((name, "hf", "rtn", Linears(name)) for name in ("fp8-w8a8", "fp8-w8a16", "fp8-block128", *FP4)),
    ("fp8-w8a8-static", "hf", "static", Linears("fp8-w8a8-static")),
    ("llm-int8", "hf", "rtn", Linears("llm-int8"), {}, "bitsandbytes"),
    ("llm-int8-outliers", "hf", "llm-int8", Linears("llm-int8"), {}, "bitsandbytes"),
    ("gptq-w8", "hf", "gptq", Linears("w8"), {}, "gptq"),
    ("gptq-w4a4", "hf", "gptq", Linears("w4a4")),
    ("gptq-w4g128", "hf", "gptq", Linears("w4g128"), {}, "gptq"),
    ("gptq-w4g128-act", "hf", "gptq", Linears("w4g128"), {"act_order": True}, "gptq"),
    ("gptq-w3g128", "hf", "gptq", Linears("w3g128"), {}, "gptq"),
    ("gptq-w2g64", "hf", "gptq", Linears("w2g64"), {}, "gptq"),
    # GGUF's blocks of 32 hold a minimum in float16, a zero point with its fraction; those of one group have the same.
    ("hqq-w4g64", "gguf", "hqq", Linears("q4_1"), {"group_size": 64}),
    ("hqq-w4g128", "gguf", "hqq", Linears("q4_1"), {"group_size": 128}),
    *((f"gptq-{name}", "hf", "gptq", Linears(name)) for name in FP4),
    *((f"had-{name}", "hf", "rtn", Linears(f"{name}-had")) for name in FP4),
    *((f"had-gptq-{name}", "hf", "gptq", Linears(f"{name}-had")) for name in FP4),
    ("awq-w4g128", "hf", "awq", Linears("w4g128-asym")),
    *((f"trellis-w{bits}", "hf", "trellis", Linears(f"trellis-w{bits}"), {}, "trellis") for bits in (2, 3, 4)),
)
NAME = re.compile(r"(?P<before>.*-w)(?P<bits>[2348])g(?P<size>[0-9]+)(?P<after>.*)")
SIZES = tuple(map(str, GROUP_SIZES))


def _by_name(rows: Iterable[tuple[Any, ...]]) -> dict[str, Recipe]:
    return {row[0]: Recipe(*row) for row in rows}


RECIPES = _by_name(ROWS + MIX_ROWS + IMATRIX_ROWS + GPTQ_ROWS)


def with_groups(name: str) -> Recipe | None:
    """The recipe of the table that differs from `name` only in bits and group size, with those, or None.

    HQQ has groups of any size over blocks of 4 bits.
    """
    if (wanted := NAME.fullmatch(name)) is None or wanted["size"] not in SIZES:
        return None
    for known, recipe in RECIPES.items():
        found = NAME.fullmatch(known)
        if found is None or (found["before"], found["after"]) != (wanted["before"], wanted["after"]):
            continue
        if "group_size" in recipe.options:
            if found["bits"] != wanted["bits"]:
                continue
            return replace(recipe, name=name, options={**recipe.options, "group_size": int(wanted["size"])})
        assert isinstance(recipe.policy, Linears), f"{known}: a preset of groups"
        group = get_format(recipe.policy.format)
        assert isinstance(group, IntGroupFormat), f"{known}: a preset of groups"
        other = IntGroupFormat(int(wanted["bits"]), int(wanted["size"]), group.symmetric)
        return replace(recipe, name=name, policy=Linears(get_format(other.name).name))
    return None
