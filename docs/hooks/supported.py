"""The table of README that says which recipes, formats, policies, families and processors there are.

python -m docs.hooks.supported           exit 1 if README differs
python -m docs.hooks.supported --write   put the table into README
"""

import sys
from pathlib import Path

import cpu_kernels
from qbench.policies.registry import policy_names
from qbench.report.markers import replace_between_markers
from quant.kv import KV_FORMATS
from quant.methods import METHODS
from quant.models.architectures import ARCHITECTURES
from quant.recipes import RECIPES
from quant.recipes.listing import list_recipes

README = Path(__file__).parents[2] / "README.md"


def supported() -> str:
    """The table in Markdown."""
    containers = sorted({row.container for row in list_recipes()})
    isas = list(dict.fromkeys(row["impl"] for row in cpu_kernels.op_table() if row["op"] == "linear_q8_0"))
    rows = {
        f"{len(RECIPES)} recipes": ", ".join(METHODS) + "; YAML rules",
        "containers": ", ".join(containers),
        "KV formats": ", ".join(KV_FORMATS),
        "cache policies": ", ".join(sorted(policy_names())),
        "model families": ", ".join(ARCHITECTURES),
        "instruction sets": ", ".join(isas),
        "GPUs": "CUDA through Triton: sm_80, sm_90, sm_100",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in rows.items())])


def main(arguments: list[str]) -> int:
    if "--write" in arguments:
        replace_between_markers(README, "supported", supported())
        return 0
    return int(supported() not in README.read_text(encoding="utf-8"))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
