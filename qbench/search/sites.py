"""The places that a search gives a format: one per tensor of the GGUF file, so a stack of experts is one place."""

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import prod

from quant.formats import get_format
from quant.models import POSITIONS, ModelConfig, expected_tensors
from quant.recipes.containers import fit_row
from quant.recipes.roles import Role, gguf_place
from quant.source import Source

SUPER_BLOCK = 256
# GGUF's formats by size, for rows of whole super-blocks and for other rows. Small blocks take as many bits as
# super-blocks and lose more, so the former leave them out: each grid costs a GPTQ run over the sampled rows.
FORMATS = ("q2_k", "q3_k", "iq4_xs", "q4_k", "q5_k", "q6_k", "q8_0", "f16")
SMALL_FORMATS = ("iq4_nl", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "f16")
EXPERT = re.compile(r"\.experts\.\d+\.")


@dataclass(frozen=True, slots=True)
class Site:
    """One tensor of the GGUF file.

    names    canonical names of the tensors that it holds: several for a stack of experts
    layer    None outside the decoder layers
    formats  format -> bytes; those that hold the rows
    """

    gguf_name: str
    names: tuple[str, ...]
    layer: int | None
    role: Role
    formats: dict[str, int]


def sites_of(source: Source) -> list[Site]:
    """The matrices of the model, without routers of experts and tables of positions, which stay in floats."""
    config = ModelConfig.of(source)
    expected = expected_tensors(config)
    stacks: dict[str, list[str]] = {}
    for name, info in source.tensors.items():
        if len(info.shape) > 1 and name != POSITIONS and gguf_place(name, config).role is not Role.ROUTER:
            stacks.setdefault(expected[name].gguf_name, []).append(name)
    return [_site(gguf_name, tuple(names), source, config) for gguf_name, names in stacks.items()]


def _site(gguf_name: str, names: tuple[str, ...], source: Source, config: ModelConfig) -> Site:
    place = gguf_place(names[0], config)
    shapes = [source.tensors[name].shape for name in names]
    row_size = shapes[0][-1]
    formats = SMALL_FORMATS if row_size % SUPER_BLOCK else FORMATS
    fitting = dict.fromkeys(fit_row(names[0], fmt, row_size, "gguf") for fmt in formats)
    sizes = {fmt: sum(get_format(fmt).size_bytes(shape) for shape in shapes) for fmt in fitting}
    return Site(gguf_name, names, place.layer, place.role, sizes)


def fixed_bytes(source: Source, sites: list[Site]) -> int:
    """Bytes of the tensors that the search leaves alone, which GGUF keeps in float32."""
    searched = {name for site in sites for name in site.names}
    return sum(4 * prod(info.shape) for name, info in source.tensors.items() if name not in searched)


def patterns_of(site: Site, names: list[str]) -> list[str]:
    """Patterns of a recipe that match the site's tensors and no others of the model. names: of all its tensors"""
    pattern = EXPERT.sub(".experts.*.", site.names[0])
    if sorted(name for name in names if fnmatchcase(name, pattern)) == sorted(site.names):
        return [pattern]
    return list(site.names)
