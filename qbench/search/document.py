"""The mix as a recipe document that `quant.recipes` reads, so that a search and a rerun make the same bytes."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from qbench.search.sites import GGUF, Site, patterns_of
from qbench.search.solve import Option
from quant.models import ModelConfig
from quant.recipes.roles import Role, gguf_place
from quant.source import Source

MARK = "# qbench quantize"  # how a recipe of a search begins
METHOD = "gptq"  # the recipe's own; sites that another method suits better say so


def mix_document(name: str, source: Source, sites: Sequence[Site], chosen: Sequence[Option]) -> dict[str, Any]:
    """One rule per site, over the commonest format. chosen: for the sites"""
    default = Counter(option.format for option in chosen).most_common(1)[0][0]
    names = list(source.tensors)
    rules: list[dict[str, str]] = []
    for site, option in zip(sites, chosen, strict=True):
        says = {"format": option.format} | ({} if option.method == METHOD else {"method": option.method})
        rules += [{"match": pattern, **says} for pattern in patterns_of(site, names)]
    container = sites[0].container
    rules += _router_rules(source) if container == GGUF else []
    return {"name": name, "container": container, "default": default, "method": METHOD, "rules": rules}


def uniform_document(source: Source, fmt: str) -> dict[str, Any]:
    """One format for all matrices of a GGUF file that a mix may change, rounded to nearest."""
    rules = _router_rules(source)
    return {"name": f"uniform-{fmt}", "container": GGUF, "default": fmt, "method": "rtn", "rules": rules}


def _router_rules(source: Source) -> list[dict[str, str]]:
    config = ModelConfig.of(source)
    routers = [name for name in source.tensors if gguf_place(name, config).role is Role.ROUTER]
    return [{"match": router, "format": "f32"} for router in routers if router.endswith("weight")]


def is_searched(path: Path) -> bool:
    """Whether a file is the recipe of an earlier search, which a new one may replace."""
    return path.is_file() and path.read_bytes().startswith(MARK.encode())


def to_yaml(document: Mapping[str, Any], command: str, reason: str) -> str:
    """command: the words after `qbench quantize` that led to the recipe"""
    return f"{MARK} {command}\n# {reason}\n" + yaml.safe_dump(dict(document), sort_keys=False, width=120)
